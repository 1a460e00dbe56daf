"""From a file to something that can be run: checks, loading, warm-up, and which version a request gets."""
