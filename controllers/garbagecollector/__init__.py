"""The garbage collector: deletes objects whose owners are gone, in the order their deletion asks for."""
