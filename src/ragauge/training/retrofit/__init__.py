"""RETRO-fit: training a frozen decoder to use retrieved neighbours."""
