"""The loss of a sequence with all its windows' neighbours, in one differentiable pass: one file per trainable form.

`generation/retrofit` computes the same functions window by window and writes into a cache in place; tests compare the
two. The layers are the decoder's own, whatever its family.
"""
