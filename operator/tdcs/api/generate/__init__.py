"""The CustomResourceDefinitions and their reference, generated from the models."""
