/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The maps of the span programs, and the entries of their tables. */
#ifndef HEDDLE_OBSERVE_SPANS_MAPS_H
#define HEDDLE_OBSERVE_SPANS_MAPS_H

#include "../include/spans.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_control);
} control SEC(".maps");

/* Which ports are watched: OB_TCP, OB_UDP. */
struct ob_ports {
	__u8 of[64];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct ob_ports);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

/* enum ob_why of each system call, from user space, which has their numbers by name. */
struct ob_reasons {
	__u8 of[OB_SYSCALLS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_reasons);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_SOCKET_SETS);
	__type(key, __u32);
	__type(value, struct ob_set);
} socket_keys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_SOCKET_SETS *OB_WAYS);
	__type(key, __u32);
	__type(value, struct ob_socket);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_THREAD_SETS);
	__type(key, __u32);
	__type(value, struct ob_set);
} thread_keys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_THREAD_SETS *OB_WAYS);
	__type(key, __u32);
	__type(value, struct ob_thread);
} threads SEC(".maps");

/* Entry 0 only counts those in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_QUEUES);
	__type(key, __u32);
	__type(value, struct ob_queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} ring SEC(".maps");

static __always_inline struct ob_control *the_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Returns OB_TCP or OB_UDP if the socket's port is watched, else 0. */
static __always_inline __u32 watched(struct sock *sk)
{
	__u32 port = sk->__sk_common.skc_num, at = port >> 6, kind = 0;
	struct ob_ports *bits;

	if (!port)
		return 0;
	bits = bpf_map_lookup_elem(&ports, &at);
	if (!bits || !bits->of[port & 63])
		return 0;
	if (sk->sk_protocol == IPPROTO_TCP)
		kind = OB_TCP;
	else if (sk->sk_protocol == IPPROTO_UDP)
		kind = OB_UDP;
	return bits->of[port & 63] & kind;
}

static __always_inline __u64 cookie_of(struct sock *sk)
{
	__u64 cookie = sk->__sk_common.skc_cookie.counter;

	return cookie ? cookie : bpf_get_socket_cookie(sk);
}

/* A datagram is in work by a thread: several threads may read one socket. Cookies are counted from 1. */
static __always_inline __u64 datagram_key(__u64 cookie, __u32 tid)
{
	return cookie ^ ((__u64)tid << 40);
}

static __always_inline struct ob_socket *socket_at(__u32 entry)
{
	return bpf_map_lookup_elem(&sockets, &entry);
}

static __noinline __u32 new_socket(__u64 key, struct ob_control *c)
{
	__u32 entry = ob_claim(&socket_keys, OB_SOCKET_SETS, key);
	struct ob_socket *s = entry == OB_NONE ? NULL : socket_at(entry);

	if (!s) {
		if (c)
			ADD(c->refused, 1);
		return OB_NONE;
	}
	s->established = s->ready = s->last_ready = s->last_answered = s->sequence = 0;
	s->state = OB_CLOSED;
	s->queue = s->request.answered = 0;
	return entry;
}

static __always_inline __u32 find_socket(__u64 key)
{
	return ob_find(&socket_keys, OB_SOCKET_SETS, key);
}

static __always_inline __u32 get_socket(__u64 key, struct ob_control *c)
{
	__u32 entry = find_socket(key);

	return entry == OB_NONE ? new_socket(key, c) : entry;
}

static __always_inline struct ob_thread *find_thread(__u32 tid)
{
	__u32 entry = ob_find(&thread_keys, OB_THREAD_SETS, tid);

	return entry == OB_NONE ? NULL : bpf_map_lookup_elem(&threads, &entry);
}

static __always_inline struct ob_thread *get_thread(__u32 tid, struct ob_control *c)
{
	struct ob_thread *t = find_thread(tid);
	__u32 entry;

	if (t)
		return t;
	entry = ob_claim(&thread_keys, OB_THREAD_SETS, tid);
	t = entry == OB_NONE ? NULL : bpf_map_lookup_elem(&threads, &entry);
	if (!t) {
		ADD(c->refused, 1);
		return NULL;
	}
	__builtin_memset(t, 0, sizeof *t);
	return t;
}

#endif
