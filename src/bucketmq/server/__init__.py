"""BucketMQ over HTTP: receivers of other systems' notifications, and handlers mounted as webhook endpoints.

`endpoint` needs no web framework; the server itself is `bucketmq.server.app.make_app` and needs the extra `server`.

```python
from bucketmq.server import endpoint

app.mount("/hooks/route", endpoint(route, bucket, bearer=[token]))
```
"""

from __future__ import annotations

from bucketmq.server.hook import Endpoint, endpoint
from bucketmq.server.settings import ServerSettings

__all__ = ["Endpoint", "ServerSettings", "endpoint"]
