"""The whole system on a real Kubernetes, installed as a user would: for a demo and for the e2e tests."""
