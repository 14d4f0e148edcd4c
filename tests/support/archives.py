"""Archives of files in memory."""

import io
import zipfile


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in files.items():
            file.writestr(name, body)
    return packed.getvalue()


def write_wheel(folder, package, files, tag="py3-none-any"):
    """Version 1.0 of a package."""
    name = package.replace("-", "_")
    metadata = {
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    path = folder / f"{name}-1.0-{tag}.whl"
    path.write_bytes(zipped({**files, **metadata}))
    return path
