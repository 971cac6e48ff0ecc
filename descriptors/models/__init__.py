"""What answers: embedders, behind one-method protocols."""
