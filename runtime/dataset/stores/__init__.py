"""Where data sets come from and results go to: one module for each kind of place."""
