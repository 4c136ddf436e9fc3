"""What simulated nodes and the controllers beside them share: agenda of timers, events, Node objects."""
