"""The code people copy: one idea a module, torch and the stdlib only."""
