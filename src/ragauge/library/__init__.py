"""The Python library, `import ragauge`, and the packages that `ragauge new` writes for components
of one's own.
"""
