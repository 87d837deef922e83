"""Prints what is in a trace of Perfetto, a line each, as `crates/export/examples/trace.rs` does."""

import sys

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import FtraceEventBundle, Trace, TrackEvent

CLEARED = 1
OWN_CLOCK = 64


def switches(bundle: FtraceEventBundle) -> None:
    """Prints the switches of a CPU."""
    sched, at = bundle.compact_sched, 0
    columns = (sched.switch_timestamp, sched.switch_next_pid, sched.switch_next_comm_index)
    for since, tid, name in zip(*columns, strict=True):
        at += since
        print("switch", at, bundle.cpu, tid, sched.intern_table[name], sep="\t")


class Sequence:
    """The names and the clock of a sequence of packets."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.now = 0

    def event(self, packet: object, tracks: dict[int, str]) -> None:
        """Prints an event of a track."""
        for name in packet.interned_data.event_names:
            self.names[name.iid] = name.name
        if packet.HasField("timestamp_clock_id"):
            at = packet.timestamp
        else:
            self.now += packet.timestamp
            at = self.now
        event = packet.track_event
        kinds = {TrackEvent.TYPE_SLICE_BEGIN: "begin", TrackEvent.TYPE_SLICE_END: "end"}
        if event.type in kinds:
            flows = [*event.flow_ids, *event.terminating_flow_ids]
            name = self.names[event.name_iid] if event.name_iid else ""
            flow = ",".join(str(flow) for flow in flows)
            print(kinds[event.type], at, tracks[event.track_uuid], name, flow, sep="\t")


def check_known(message: Message) -> None:
    """Checks that nothing is written that the official messages do not know."""
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for one in value if isinstance(value, list) or hasattr(value, "append") else [value]:
                check_known(one)


def main(path: str) -> None:
    """Prints the trace in the file `path`."""
    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    tracks: dict[int, str] = {}
    sequences: dict[int, Sequence] = {}
    for packet in trace.packet:
        check_known(packet)
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if packet.HasField("ftrace_events"):
            switches(packet.ftrace_events)
        if packet.sequence_flags & CLEARED:
            sequence = sequences[packet.trusted_packet_sequence_id] = Sequence()
            own = [clock for clock in packet.clock_snapshot.clocks if clock.clock_id == OWN_CLOCK]
            assert own[0].is_incremental and packet.trace_packet_defaults.timestamp_clock_id == OWN_CLOCK
            sequence.now = own[0].timestamp
        if packet.HasField("track_event"):
            sequences[packet.trusted_packet_sequence_id].event(packet, tracks)


main(sys.argv[1])
