"""ValidatingAdmissionPolicy status: type checking of the expressions of policies."""
