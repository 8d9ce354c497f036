"""Workers of a job: how they find each other, and packets of tensors between them."""
