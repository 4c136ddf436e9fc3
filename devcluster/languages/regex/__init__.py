"""Go (RE2) regular expressions, executed by Python's re or by an automaton without backtracking."""
