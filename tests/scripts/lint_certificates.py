"""Lints certificates by RFC 5280 with pkilint: `lint_certificates.py FILE.pem...`. Prints findings; status 1 if any.

Left aside: that `localhost` and `kubernetes` are single labels. Kubernetes' own names are, and no public authority is meant.
"""

import sys

from pkilint import loader
from pkilint.pkix import certificate, extension, name
from pkilint.validation import ValidationFindingSeverity

SINGLE_LABELS = {"localhost", "kubernetes"}


def validator():
    return certificate.create_pkix_certificate_validator_container(
        certificate.create_decoding_validators(name.ATTRIBUTE_TYPE_MAPPINGS, extension.EXTENSION_MAPPINGS),
        [
            certificate.create_issuer_validator_container([]),
            certificate.create_validity_validator_container(),
            certificate.create_subject_validator_container([]),
            certificate.create_extensions_validator_container([]),
            certificate.create_spki_validator_container([]),
        ],
    )


def findings(checks, path):
    with open(path, encoding="ascii") as file:
        document = loader.load_pem_certificate(file.read(), path)
    for result in checks.validate(document.root):
        for found in result.finding_descriptions:
            # A smaller value of the enumeration is not promised to be graver: name what counts.
            if found.finding.severity not in (
                ValidationFindingSeverity.FATAL,
                ValidationFindingSeverity.ERROR,
                ValidationFindingSeverity.WARNING,
            ):
                continue
            label = (found.message or "").rpartition(": ")[2].strip('"')
            if found.finding.code == "pkix.invalid_domain_name_syntax" and label in SINGLE_LABELS:
                continue
            yield f"{path}: {found.finding.severity.name} {found.finding.code} {found.message or ''}"


def main(paths):
    checks = validator()
    lines = [line for path in paths for line in findings(checks, path)]
    print("\n".join(lines) if lines else f"{len(paths)} certificates: clean")
    return 1 if lines or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
