"""A Pub/Sub that needs nothing but gRPC: for machines without Google's emulator.

The unary calls of Publisher, Subscriber and IAM policies, and streaming pull, in this process, over
a real port. It keeps Pub/Sub's promises and its liberties: a message comes again when its lease
runs out, or at once when the deadline is set to zero; an expired acknowledgment is accepted and
does nothing; an invented one is refused; filters of subscriptions are obeyed by no emulator, so
they are ignored here too.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp
from google.pubsub_v1 import types

DEFAULT_DEADLINE_SECONDS = 10
LONGEST_PULL_SECONDS = 0.5
"""An empty pull is answered after this time, as Google's emulator does after a second."""


@dataclass(slots=True)
class Lease:
    message: types.PubsubMessage
    until: float


@dataclass(slots=True)
class Queue:
    """What one subscription still has to deliver."""

    subscription: types.Subscription
    ready: deque[types.PubsubMessage] = field(default_factory=deque)
    leases: dict[str, Lease] = field(default_factory=dict)
    issued: set[str] = field(default_factory=set)
    attempts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Fault:
    method: str
    code: grpc.StatusCode
    times: int


class PubSub:
    """The service: each public method is one call of the API, with the API's name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self._topics: dict[str, types.Topic] = {}
        self._queues: dict[str, Queue] = {}
        self._policies: dict[str, policy_pb2.Policy] = {}
        self._changed = threading.Condition(threading.RLock())

    # ── topics ───────────────────────────────────────────────────────────────────────────────────

    def CreateTopic(self, request, context):  # noqa: N802 - names of the API
        if request.name in self._topics:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "Topic already exists")
        self._topics[request.name] = request
        return request

    def GetTopic(self, request, context):  # noqa: N802
        return self._topic(request.topic, context)

    def ListTopics(self, request, context):  # noqa: N802
        mine = [t for name, t in self._topics.items() if name.startswith(request.project + "/")]
        return types.ListTopicsResponse(topics=mine)

    def ListTopicSubscriptions(self, request, context):  # noqa: N802
        self._topic(request.topic, context)
        names = [n for n, q in self._queues.items() if q.subscription.topic == request.topic]
        return types.ListTopicSubscriptionsResponse(subscriptions=names)

    def DeleteTopic(self, request, context):  # noqa: N802
        self._topic(request.topic, context)
        del self._topics[request.topic]
        for queue in self._queues.values():
            if queue.subscription.topic == request.topic:
                queue.subscription.topic = "_deleted-topic_"
        return Empty()

    def Publish(self, request, context):  # noqa: N802
        self._topic(request.topic, context)
        now = Timestamp()
        now.GetCurrentTime()
        for message in request.messages:
            message.message_id = str(uuid.uuid4().int >> 64)
            types.PubsubMessage.pb(message).publish_time.CopyFrom(now)
            self._send(request.topic, message)
        self._changed.notify_all()
        return types.PublishResponse(message_ids=[m.message_id for m in request.messages])

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────

    def CreateSubscription(self, request, context):  # noqa: N802
        if request.name in self._queues:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "Subscription already exists")
        self._topic(request.topic, context)
        request.ack_deadline_seconds = request.ack_deadline_seconds or DEFAULT_DEADLINE_SECONDS
        self._queues[request.name] = Queue(request)
        return request

    def GetSubscription(self, request, context):  # noqa: N802
        return self._queue(request.subscription, context).subscription

    def ListSubscriptions(self, request, context):  # noqa: N802
        prefix = request.project + "/"
        mine = [q.subscription for name, q in self._queues.items() if name.startswith(prefix)]
        return types.ListSubscriptionsResponse(subscriptions=mine)

    def DeleteSubscription(self, request, context):  # noqa: N802
        self._queue(request.subscription, context)
        del self._queues[request.subscription]
        return Empty()

    def Pull(self, request, context):  # noqa: N802
        # Half of what is left: to a client whose time is over, messages would be given in vain.
        left = (context.time_remaining() or 2 * LONGEST_PULL_SECONDS) / 2
        wait = min(left, LONGEST_PULL_SECONDS)
        until = time.monotonic() + (0 if request.return_immediately else wait)
        while True:
            queue = self._queue(request.subscription, context)
            taken = self._take(queue, request.max_messages) if context.is_active() else []
            left = until - time.monotonic()
            if taken or left <= 0 or not context.is_active():
                return types.PullResponse(received_messages=taken)
            self._changed.wait(min(left, 0.1))  # a lease may run out meanwhile

    def Acknowledge(self, request, context):  # noqa: N802
        queue = self._queue(request.subscription, context)
        self._expire(queue)
        self._check_issued(queue, request.ack_ids, context)
        for ack_id in request.ack_ids:
            queue.leases.pop(ack_id, None)
        return Empty()

    def ModifyAckDeadline(self, request, context):  # noqa: N802
        queue = self._queue(request.subscription, context)
        self._expire(queue)
        self._check_issued(queue, request.ack_ids, context)
        for ack_id in request.ack_ids:
            if lease := queue.leases.get(ack_id):
                lease.until = time.monotonic() + request.ack_deadline_seconds
        self._expire(queue)
        self._changed.notify_all()
        return Empty()

    def StreamingPull(self, requests, context):  # noqa: N802 - the only call that is not unary
        name = next(requests).subscription
        reader = threading.Thread(target=self._read_stream, args=(name, requests, context))
        reader.daemon = True
        reader.start()
        while context.is_active():
            with self._changed:
                taken = self._take(self._queue(name, context), 100)
                if not taken:
                    self._changed.wait(0.1)
            if taken:
                yield types.StreamingPullResponse(received_messages=taken)

    # ── who may ──────────────────────────────────────────────────────────────────────────────────

    def GetIamPolicy(self, request, context):  # noqa: N802
        return self._policies.get(request.resource, policy_pb2.Policy())

    def SetIamPolicy(self, request, context):  # noqa: N802
        self._policies[request.resource] = request.policy
        return request.policy

    # ── the engine room ──────────────────────────────────────────────────────────────────────────

    def fail(self, method: str, code: grpc.StatusCode, times: int = 1) -> None:
        """Let the next calls of a method fail."""
        self.faults.append(Fault(method, code, times))

    def unary(self, method: str):
        """One call at a time, counted, failing when it is told to."""

        def call(request, context):
            with self._changed:
                self.calls[method] += 1
                for fault in self.faults:
                    if fault.method == method and fault.times > 0:
                        fault.times -= 1
                        context.abort(fault.code, "injected by the test")
                return getattr(self, method)(request, context)

        return call

    def _topic(self, name, context) -> types.Topic:
        if name not in self._topics:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={_last(name)})."
            )
        return self._topics[name]

    def _queue(self, name, context) -> Queue:
        if name not in self._queues:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"Subscription does not exist (resource={_last(name)})",
            )
        return self._queues[name]

    @staticmethod
    def _check_issued(queue: Queue, ack_ids, context) -> None:
        for ack_id in ack_ids:
            if ack_id not in queue.issued:
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"Some acknowledgement ids in the request were invalid. (ack_id={ack_id})",
                )

    def _send(self, topic: str, message: types.PubsubMessage) -> None:
        for queue in self._queues.values():
            if queue.subscription.topic == topic:
                queue.ready.append(types.PubsubMessage(message))

    @staticmethod
    def _expire(queue: Queue) -> None:
        """Make what is no longer leased ready again."""
        now = time.monotonic()
        for ack_id, lease in list(queue.leases.items()):
            if lease.until <= now:
                del queue.leases[ack_id]
                queue.ready.append(lease.message)

    def _take(self, queue: Queue, most: int) -> list[types.ReceivedMessage]:
        """Lease messages; one delivered too often goes to the dead-letter topic instead."""
        self._expire(queue)
        policy = queue.subscription.dead_letter_policy
        taken: list[types.ReceivedMessage] = []
        while queue.ready and len(taken) < most:
            message = queue.ready.popleft()
            attempt = queue.attempts[message.message_id] = queue.attempts[message.message_id] + 1
            if policy.dead_letter_topic and attempt > (policy.max_delivery_attempts or 5):
                self._send(policy.dead_letter_topic, message)
                continue
            ack_id = uuid.uuid4().hex
            queue.issued.add(ack_id)
            until = time.monotonic() + queue.subscription.ack_deadline_seconds
            queue.leases[ack_id] = Lease(message, until)
            taken.append(
                types.ReceivedMessage(
                    ack_id=ack_id,
                    message=message,
                    delivery_attempt=attempt if policy.dead_letter_topic else 0,
                )
            )
        return taken

    def _read_stream(self, name, requests, context) -> None:
        """Obey what a streaming client sends while it receives, until it goes away."""
        try:
            for request in requests:
                with self._changed:
                    queue = self._queues.get(name)
                    if queue is None:
                        return
                    for ack_id in request.ack_ids:
                        queue.leases.pop(ack_id, None)
                    self._extend(queue, request)
        except grpc.RpcError:
            return

    @staticmethod
    def _extend(queue: Queue, request: types.StreamingPullRequest) -> None:
        changes = zip(
            request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=False
        )
        for ack_id, seconds in changes:
            if lease := queue.leases.get(ack_id):
                lease.until = time.monotonic() + seconds


def serve(port: int = 0, workers: int = 16) -> tuple[PubSub, grpc.Server, int]:
    """Start the service on a port of the loopback.

    Returns:
        The service, to look into and to make fail; its server, to stop; the port.
    """
    service = PubSub()
    server = grpc.server(ThreadPoolExecutor(workers))
    for name, requests in _CALLS.items():
        calls = {
            method: grpc.unary_unary_rpc_method_handler(
                service.unary(method), request_deserializer=_reader(of), response_serializer=_write
            )
            for method, of in requests.items()
        }
        if name == "google.pubsub.v1.Subscriber":
            calls["StreamingPull"] = grpc.stream_stream_rpc_method_handler(
                service.StreamingPull,
                request_deserializer=types.StreamingPullRequest.deserialize,
                response_serializer=_write,
            )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, calls),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return service, server, bound


_CALLS = {
    "google.pubsub.v1.Publisher": {
        "CreateTopic": types.Topic,
        "GetTopic": types.GetTopicRequest,
        "ListTopics": types.ListTopicsRequest,
        "ListTopicSubscriptions": types.ListTopicSubscriptionsRequest,
        "DeleteTopic": types.DeleteTopicRequest,
        "Publish": types.PublishRequest,
    },
    "google.pubsub.v1.Subscriber": {
        "CreateSubscription": types.Subscription,
        "GetSubscription": types.GetSubscriptionRequest,
        "ListSubscriptions": types.ListSubscriptionsRequest,
        "DeleteSubscription": types.DeleteSubscriptionRequest,
        "Pull": types.PullRequest,
        "Acknowledge": types.AcknowledgeRequest,
        "ModifyAckDeadline": types.ModifyAckDeadlineRequest,
    },
    "google.iam.v1.IAMPolicy": {
        "GetIamPolicy": iam_policy_pb2.GetIamPolicyRequest,
        "SetIamPolicy": iam_policy_pb2.SetIamPolicyRequest,
    },
}


def _reader(of):
    """How a request is read: Pub/Sub's types are proto-plus, IAM's are plain."""
    return getattr(of, "deserialize", None) or of.FromString


def _write(message) -> bytes:
    """How an answer is written."""
    if hasattr(message, "SerializeToString"):
        return message.SerializeToString()
    return type(message).serialize(message)


def _last(name: str) -> str:
    return name.rpartition("/")[2]
