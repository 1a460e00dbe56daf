"""Mode Batch: a Job runs a data set through the model, and how it ends is read from the Job and its pod."""
