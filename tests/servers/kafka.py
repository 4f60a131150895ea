"""Apache Kafka 4.1 (KRaft, from Maven Central): one broker for everybody, or clusters of a test's own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.servers.base import LOCALHOST, Server, ServerUnavailable, free_port, run_server, wait_until
from tests.servers.packages import apt_install, maven_jars, run_quietly
from tests.servers.proxy import FaultProxy

JARS = ("org.apache.kafka:kafka_2.13:4.1.0", "org.slf4j:slf4j-simple:1.7.36")
USERS = {"relay": "relay-secret", "stranger": "stranger-secret"}
"""Who may log in at the SASL listener. They may do what a test's ACLs allow; on the plain one all is allowed."""


class Record(NamedTuple):
    """What a consumer finds in a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: dict[str, bytes]


@dataclass
class Broker:
    """One node, broker and controller at once. May be killed and started again on the same data."""

    node: int
    folder: Path
    proxy: FaultProxy
    """In front of a listener of its own, which advertises the proxy's address: all traffic goes through it."""
    port: int = field(default_factory=free_port)
    sasl_port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    server: Server | None = None
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    def start(self, *, wait: bool = True) -> None:
        """Run it; it answers when this returns, unless told not to wait."""
        ready = self.answers if wait else lambda: True
        argv = [*java("-Xmx512m", "-XX:TieredStopAtLevel=1"), "kafka.Kafka", str(self.properties)]
        self.server = self._running.enter_context(run_server(argv, ready=ready, name=f"kafka-{self.node}", timeout=120))

    def stop(self) -> None:
        self._running.close()
        self.server = None

    def kill(self) -> None:
        """SIGKILL: no goodbye to the other nodes."""
        if self.server:
            self.server.kill()
        self.stop()

    def forget(self, topic: str) -> None:
        """Lose what it holds of a topic. Only while it does not run."""
        for folder in (self.folder / "data").glob(f"{topic}-*"):
            shutil.rmtree(folder)

    def answers(self) -> bool:
        admin = quiet_admin({"bootstrap.servers": f"{LOCALHOST}:{self.port}"})
        return self.node in admin.list_topics(timeout=2).brokers


@dataclass
class KafkaCluster:
    """Some brokers and what a test asks of them."""

    brokers: list[Broker]
    elsewhere: str = ""
    """Bootstrap servers of a cluster that somebody else runs."""

    @property
    def bootstrap(self) -> str:
        return self.elsewhere or ",".join(f"{LOCALHOST}:{broker.port}" for broker in self.brokers)

    @property
    def client(self) -> dict[str, str]:
        """librdkafka options of somebody who may do everything."""
        return {"bootstrap.servers": self.bootstrap}

    @property
    def proxied_client(self) -> dict[str, str]:
        """The same, by way of the brokers' proxies."""
        return {"bootstrap.servers": ",".join(f"{LOCALHOST}:{broker.proxy.port}" for broker in self.brokers)}

    def client_as(self, user: str) -> dict[str, str]:
        """librdkafka options of one of `USERS`, with SASL/PLAIN."""
        return {
            "bootstrap.servers": ",".join(f"{LOCALHOST}:{broker.sasl_port}" for broker in self.brokers),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
        }

    def admin(self) -> AdminClient:
        return quiet_admin(self.client)

    def new_topic(self, name: str = "", *, partitions: int = 1, replicas: int = 1, **config: str | int) -> str:
        """Create a topic (of a fresh name, unless given one); underscores in option names stand for dots."""
        name = name or new_name()
        options = {option.replace("_", "."): str(value) for option, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=options)
        admin = self.admin()
        admin.create_topics([topic])[name].result(timeout=20)

        def has_leaders() -> bool:
            found = admin.list_topics(name, timeout=5).topics[name]
            return len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values())

        wait_until(has_leaders, what=f"leaders of topic {name}")
        return name

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(timeout=20)
        wait_until(lambda: name not in admin.list_topics(timeout=5).topics, what=f"the end of topic {name}")

    def topic_option(self, name: str, option: str) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, name)
        admin = self.admin()
        value: str | None = admin.describe_configs([resource])[resource].result(timeout=20)[option].value
        return value

    def alter_topic(self, name: str, **config: str | int) -> None:
        entries = [ConfigEntry(option.replace("_", "."), str(value)) for option, value in config.items()]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(timeout=20)

    def allow(
        self,
        name: str,
        operation: AclOperation,
        *,
        user: str = "relay",
        kind: ResourceType = ResourceType.TOPIC,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> None:
        """Let one of `USERS` do this to a topic, or to whatever `kind` says."""
        acl = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        admin = self.admin()
        admin.create_acls([acl])[acl].result(timeout=20)

    def leader(self, topic: str, partition: int = 0) -> Broker:
        found = self.admin().list_topics(topic, timeout=10).topics[topic].partitions[partition].leader
        return next(broker for broker in self.brokers if broker.node == found)

    def in_sync(self, topic: str) -> int:
        """How many replicas of its partitions are in sync."""
        partitions = self.admin().list_topics(topic, timeout=10).topics[topic].partitions.values()
        return sum(len(partition.isrs) for partition in partitions)

    def read(self, *topics: str, isolation: str = "read_committed", timeout: float = 20.0) -> list[Record]:
        """All records of the topics up to now; within a partition in offset order. Waits for open transactions."""
        with self._consumer("read_uncommitted") as consumer:
            ends = _ends(consumer, topics)
        with self._consumer(isolation) as consumer:
            return _read_until(consumer, ends, time.monotonic() + timeout)

    @contextmanager
    def _consumer(self, isolation: str) -> Iterator[Consumer]:
        consumer = Consumer({**self.client, "group.id": uuid4().hex, "isolation.level": isolation, **QUIET})
        try:
            yield consumer
        finally:
            consumer.close()


def new_name() -> str:
    """A topic's name that nobody has used yet."""
    return f"t-{uuid4().hex[:12]}"


QUIET = {"log_level": 0}


def quiet_admin(client: Mapping[str, Any]) -> AdminClient:
    return AdminClient({**client, **QUIET})


def _ends(consumer: Consumer, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """The offsets behind the last record of every partition that has any."""
    ends: dict[tuple[str, int], int] = {}
    for topic in topics:
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            low, high = _watermarks(consumer, TopicPartition(topic, partition))
            if high > low:
                ends[topic, partition] = high
    return ends


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """First offset and the one behind the last. A topic is listed before its leader has taken over."""
    soon = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
    deadline = time.monotonic() + 20
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=10)
        except KafkaException as error:
            if error.args[0].code() not in soon or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return low, high


def _read_until(consumer: Consumer, ends: dict[tuple[str, int], int], deadline: float) -> list[Record]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in ends])
    records: list[Record] = []
    while ends:
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {sorted(ends)} were not read to their end; {len(records)} records so far")
        for message in consumer.consume(5000, timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            records.append(_record(message))
        positions = consumer.position([TopicPartition(topic, partition) for topic, partition in ends])
        for position in positions:
            # Beyond the last record there may be the marker of a transaction, which nobody gets to see.
            if position.offset >= ends[position.topic, position.partition]:
                del ends[position.topic, position.partition]
    return records


def _record(message: Any) -> Record:
    where = message.topic(), message.partition(), message.offset()
    return Record(*where, message.key(), message.value(), message.timestamp()[1], dict(message.headers() or []))


def java(*options: str) -> list[str]:
    """A command line up to the class name, with Kafka's jars.

    Raises:
        ServerUnavailable: there is no Java, or no jars.
    """
    jars = maven_jars(*JARS)
    if not shutil.which("java"):
        apt_install("default-jdk-headless")
    return ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options, "-cp", f"{jars}/*"]


def java_source(source: Path, *arguments: str) -> list[str]:
    """A command line that compiles and runs one Java file with Kafka's jars.

    Raises:
        ServerUnavailable: there is no compiler.
    """
    if not shutil.which("javac"):
        apt_install("default-jdk-headless")
    if not shutil.which("javac"):
        raise ServerUnavailable("javac", "default-jdk-headless", "no Java compiler")
    return [*java(), str(source), *arguments]


@contextmanager
def new_cluster(brokers: int = 1, **settings: str | int) -> Iterator[KafkaCluster]:
    """A running cluster of one's own.

    Args:
        settings: broker settings over the tests' own; underscores stand for dots.

    Raises:
        ServerUnavailable: Kafka or Java cannot be had here.
    """
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="relay-test-kafka-", ignore_cleanup_errors=True)
        folder = stack.enter_context(scratch)
        nodes = [
            Broker(node, Path(folder) / str(node), stack.enter_context(FaultProxy(LOCALHOST, free_port())))
            for node in range(1, brokers + 1)
        ]
        identity = uuid4().hex[:22]
        for broker in nodes:
            broker.folder.mkdir()
            broker.properties.write_text(_properties(broker, nodes, settings))
            tool = [*java("-Xmx128m", "-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool"]
            run_quietly(*tool, "format", "-t", identity, "-c", broker.properties)
        for broker in nodes:
            stack.callback(broker.kill)  # nobody needs its data any more
            broker.start(wait=False)
        wait_until(lambda: all(broker.answers() for broker in nodes), timeout=120, what="Kafka being ready")
        yield KafkaCluster(nodes)


def _properties(broker: Broker, nodes: list[Broker], settings: Mapping[str, str | int]) -> str:
    listeners = f"PLAINTEXT://{LOCALHOST}:{broker.port},SASL_PLAINTEXT://{LOCALHOST}:{broker.sasl_port},PROXIED://"
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    behind_proxy = f"{broker.proxy.upstream[0]}:{broker.proxy.upstream[1]}"
    passwords = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    values: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": broker.node,
        "controller.quorum.voters": ",".join(f"{node.node}@{LOCALHOST}:{node.controller_port}" for node in nodes),
        "listeners": f"{listeners}{behind_proxy},CONTROLLER://{LOCALHOST}:{broker.controller_port}",
        "advertised.listeners": f"{listeners}{LOCALHOST}:{broker.proxy.port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {passwords};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.dirs": str(broker.folder / "data"),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": min(3, len(nodes)),
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": min(3, len(nodes)),
        "transaction.state.log.min.isr": min(2, len(nodes)),
        "group.initial.rebalance.delay.ms": 0,
        # The tests' messages carry times of long ago, and Kafka counts a record's age from its own timestamp.
        "log.retention.ms": -1,
        # A node that is back leads again what it led.
        "leader.imbalance.check.interval.seconds": 1,
        "leader.imbalance.per.broker.percentage": 0,
        # A dead node is missed in seconds, so that a test of it is short; one alone is only slow.
        "broker.session.timeout.ms": 4000 if len(nodes) > 1 else 60_000,
        "broker.heartbeat.interval.ms": 500,
        "controller.quorum.fetch.timeout.ms": 1000,
        "controller.quorum.election.timeout.ms": 500,
    }
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in values.items())


@contextmanager
def mock_cluster(brokers: int = 1, **settings: str) -> Iterator[str]:
    """librdkafka's own mock brokers, in this process: yields the bootstrap servers. Topics appear when used."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    owner = Producer({"test.mock.num.brokers": brokers, **options, **QUIET})
    found = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in found)
    del owner


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """The broker that tests share: leave it running, use topics of your own. Auto-create is off."""
    with new_cluster() as cluster:
        yield cluster
