"""The CustomResourceDefinitions, generated from the models."""
