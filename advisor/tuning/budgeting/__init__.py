"""What a study may use, what its runs will take, and what there is still room for."""
