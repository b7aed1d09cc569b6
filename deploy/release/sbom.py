"""The bill of materials of an image, in CycloneDX 1.6 (JSON).

Lists what others made: Debian packages with the hash of each architecture's file, and Python
distributions with the hashes of their locked wheels. Nothing in it changes from build to build, so
it has no serial number, and its date is that of the commit.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deploy.release.content import RELEASE, locked_pins, program_lock, read_lock
from deploy.release.errors import ContentRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deploy.release.checkout import Identity
    from deploy.release.content import Component, DebianPackage
    from deploy.release.images import BuiltImage

__all__ = ["bill_of_materials", "debian_component", "python_component"]

Json = dict[str, object]


def bill_of_materials(image: BuiltImage, identity: Identity) -> str:
    """The bill of one program's image, for all its architectures.

    Raises `ContentRefused` where a distribution is in the image and not in the lock.
    """
    packages = {(one.architecture, one.name): one for one in read_lock()}
    pins = locked_pins(program_lock(image.name))
    components: dict[str, Json] = {}
    for architecture, (base, dependencies) in image.layers:
        found = [
            *(debian_component(packages[architecture.name, one.name]) for one in base.components),
            *(python_component(one, pins) for one in dependencies.components),
        ]
        components |= {str(one["bom-ref"]): one for one in found}
    date = datetime.fromtimestamp(identity.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": date,
            "component": {
                "type": "container",
                "bom-ref": image.file.name,
                "name": image.file.name.rpartition(":")[0],
                "version": identity.version,
                "hashes": _hashes([image.file.digest.removeprefix("sha256:")]),
                "licenses": [{"expression": "Apache-2.0"}],
                "properties": [
                    {
                        "name": "coterie:pruned",
                        "value": "files of packages that the programs do not use are left out",
                    }
                ],
            },
        },
        "components": [components[reference] for reference in sorted(components)],
    }
    return json.dumps(bill, indent=1) + "\n"


def debian_component(package: DebianPackage) -> Json:
    """A Debian package; each architecture's is a component of its own."""
    version = package.version.replace("+", "%2B").replace(":", "%3A")
    reference = (
        f"pkg:deb/debian/{package.name.replace('+', '%2B')}@{version}"
        f"?arch={package.architecture}&distro={RELEASE}"
    )
    return {
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
        "hashes": _hashes([package.sha256]),
    }


def python_component(component: Component, pins: Mapping[str, tuple[str, tuple[str, ...]]]) -> Json:
    """A Python distribution, with the hashes of all files that its lock allows."""
    name = component.name.lower().replace("_", "-").replace(".", "-")
    version, hashes = pins.get(name, ("", ()))
    if version != component.version:
        msg = (
            f"the image has {component.name} {component.version}, "
            f"expected what the lock has: {version or 'nothing'}"
        )
        raise ContentRefused(msg)
    reference = f"pkg:pypi/{name}@{version}"
    licence = component.licence
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        **({"licenses": [{"license": {"name": licence}}]} if licence else {}),
        # Hashes of a component are of one file; these are of the files to choose from.
        "externalReferences": [
            {"type": "distribution", "url": reference, "hashes": _hashes(hashes)},
        ],
    }


def _hashes(values: Iterable[str]) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": value} for value in values]
