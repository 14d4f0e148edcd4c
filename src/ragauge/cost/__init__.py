"""What a run costs: traces of model calls and the folds over them."""
