"""What requests cost: the providers' list prices, and the sum for a count of requests.

Only requests are priced. Storage, transfer and free allowances depend on the account and are left out.
"""

from __future__ import annotations

import msgspec

from bucketmq.engines.meter import Requests
from bucketmq.errors import Invalid


class Prices(msgspec.Struct, frozen=True):
    """US dollars for a thousand requests of each kind. Deletes and removes are free at all of these providers.

    A store that cannot delete under a condition removes in two steps, the first of which is a write:
    see `bucketmq.bucket.objects`.
    """

    provider: str
    name: str
    write: float
    """Creates, replaces and renames."""
    read: float
    """Gets and looks."""
    list: float
    source: str
    refused_is_free: bool = False
    """Whether a write that the store refused (409, 412) is left off the bill."""


PRICES: dict[str, Prices] = {
    each.provider: each
    for each in (
        Prices("s3", "S3 Standard, us-east-1", 0.005, 0.0004, 0.005, "https://aws.amazon.com/s3/pricing/"),
        Prices(
            "s3-express",
            "S3 Express One Zone, us-east-1",
            0.00113,
            0.00003,
            0.00113,
            "https://aws.amazon.com/s3/pricing/",
        ),
        Prices(
            "gcs", "Google Cloud Storage Standard", 0.005, 0.0004, 0.005, "https://cloud.google.com/storage/pricing"
        ),
        Prices(
            "azure",
            "Azure Blob Storage, hot tier",
            0.0055,
            0.00044,
            0.0055,
            "https://learn.microsoft.com/azure/storage/blobs/blob-storage-estimate-costs (sample prices)",
        ),
        Prices(
            "r2", "Cloudflare R2 Standard", 0.0045, 0.00036, 0.0045, "https://developers.cloudflare.com/r2/pricing/"
        ),
        Prices(
            "tigris",
            "Tigris, one region",
            0.005,
            0.0005,
            0.005,
            "https://www.tigrisdata.com/pricing/",
            refused_is_free=True,
        ),
    )
}
"""List prices as read in 2026. A test pins them; change the source along with a price."""


FOLDER = Prices("folder", "a folder, which costs nothing", 0.0, 0.0, 0.0, "")


def prices_of(provider: str) -> Prices:
    """The prices of a provider, or `Invalid` with the names that are known."""
    found = FOLDER if provider == FOLDER.provider else PRICES.get(provider)
    if found is None:
        raise Invalid(f"{provider!r} is not a provider whose prices are known; use one of {', '.join(PRICES)}")
    return found


def cost(requests: Requests, provider: str) -> float:
    """What these requests cost at a provider's list prices, in US dollars."""
    prices = prices_of(provider)
    writes = requests.writes - (requests.refused if prices.refused_is_free else 0)
    return (writes * prices.write + requests.reads * prices.read + requests.list * prices.list) / 1000


def dollars(amount: float) -> str:
    """An amount for people: cents for large sums, enough digits for small ones."""
    if amount >= 1:
        return f"${amount:,.2f}"
    if amount >= 0.001:
        return f"${amount:.4f}"
    return f"${amount:.7f}".rstrip("0").rstrip(".") if amount else "$0"
