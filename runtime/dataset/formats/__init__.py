"""One module for each format that a data set can have."""
