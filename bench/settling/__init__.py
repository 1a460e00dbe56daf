"""How soon a change of an InferenceModel is live on all of its pods, on a real control plane."""
