"""Runs pip so that it builds nothing: `wheels_only.py ARGUMENT...` takes the arguments of pip.

pip's `--only-binary` is about what an index lists. Where a wheel needs a package by its URL (`Requires-Dist: name @ URL`), pip
would fetch what is there, with git or as an archive, and build it, which runs its code. PyPI refuses such wheels, but other
indexes do not. So this file closes these ways in pip before pip begins. It must never start a pip in which one of them is
missing: nobody would know what pip does in its place.
"""

import sys

PIP = "/usr/local/lib/sandbox/packages"
UNAVAILABLE = 69  # EX_UNAVAILABLE


def close():
    """Closes the ways, or raises what says which one is missing."""
    from pip._internal.distributions.sdist import SourceDistribution
    from pip._internal.exceptions import InstallationError
    from pip._internal.resolution.resolvelib.factory import Factory

    listed, candidate = Factory._make_requirements_from_install_req, Factory._make_base_candidate_from_link
    SourceDistribution.prepare_distribution_metadata  # noqa: B018 (it must be there)

    def requirements(self, ireq, requested_extras):
        if ireq.link and ireq.match_markers(requested_extras):
            by = f"{getattr(ireq.comes_from, 'name', None) or 'a package'} needs"
            raise InstallationError(f"{by} {ireq.name or 'a package'} by its URL ({ireq.link}); packages come from the index only")
        return listed(self, ireq, requested_extras)

    def base_candidate(self, link, template, *rest, **named):
        if template.editable or not link.is_wheel:
            raise InstallationError(f"{template.name or link} is no wheel ({link}); only wheels are taken, so that nothing is built")
        return candidate(self, link, template, *rest, **named)

    def prepare_metadata(self, *_, **__):
        raise InstallationError(f"{self.req} would have to be built; only wheels are taken, so that nothing is built")

    Factory._make_requirements_from_install_req = requirements
    Factory._make_base_candidate_from_link = base_candidate
    SourceDistribution.prepare_distribution_metadata = prepare_metadata


def main():
    sys.path.insert(0, PIP)
    try:
        close()
    except (ImportError, AttributeError) as missing:
        sys.stderr.write(f"the pip of this image is not one that can be kept from building packages ({missing})\n")
        return UNAVAILABLE
    from pip._internal.cli.main import main as pip

    return pip()


if __name__ == "__main__":
    sys.exit(main())
