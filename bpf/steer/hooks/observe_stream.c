/* The kernel's own view of workers that requests in streams are moved to: how many wait, and whether a thread
 * sleeps on the socket. Such a socket's own receive queue stays empty: moved requests wait in its `struct
 * sk_psock`. */
#include "hooks.h"

static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;

/* The most requests to count in a worker's queue; all of those in the backlog before it are counted. More would
 * make policies that examine 64 workers too complex for the verifier. */
#define COUNTED 8
/* The kernel keeps flags in the low bits of the pointer to a psock. */
#define POINTER ~7ull

/* Offsets in the kernel's types, in bytes. */
struct places {
	u32 psock;	/* struct sock: sk_user_data */
	u32 backlog;	/* struct sk_psock: ingress_skb.qlen */
	u32 messages;	/* struct sk_psock: ingress_msg */
	u32 wait_queue; /* struct sock: sk_wq */
	u32 waiters;	/* struct socket_wq: wait.head */
};

const volatile struct places places HD_SECTION(".hd.hd_places_constants") = {};

HD_OWN_MAP(hd_workers, HD_KIND_ARRAY, 4, sizeof(u64), HD_FEW);
typedef u64 hd_workers_value;

HD_INLINE u64 pointer_at(u64 address)
{
	u64 pointer = 0;

	read_kernel(&pointer, sizeof pointer, (void *)address);
	return pointer;
}

HD_INLINE u64 psock_of(u64 socket)
{
	return pointer_at(socket + places.psock) & POINTER;
}

HD_INLINE u32 backlog_of(u64 psock)
{
	u32 length = 0;

	read_kernel(&length, sizeof length, (void *)(psock + places.backlog));
	return length;
}

/* Returns how many requests the kernel holds for worker `k` beside its full receive buffer. */
__attribute__((noinline)) u32 hd_backlog(u32 k)
{
	u64 *socket = hd_at(hd_workers, k);

	return socket && *socket ? backlog_of(psock_of(*socket)) : 0;
}

__attribute__((noinline)) u32 hd_qlen(u32 k)
{
	u64 *socket = hd_at(hd_workers, k);

	if (!socket || !*socket)
		return 0;
	u64 psock = psock_of(*socket);
	u64 head = psock + places.messages, at = pointer_at(head);
	u32 length = backlog_of(psock);

	/* Read without a lock: the list may change meanwhile, and a wrong number is the worst result. */
	for (u32 i = 0; i < COUNTED && at != head; i++) {
		length++;
		at = pointer_at(at);
	}
	return length;
}

__attribute__((noinline)) u32 hd_idle(u32 k)
{
	u64 *socket = hd_at(hd_workers, k);

	if (!socket || !*socket)
		return 0;
	u64 psock = psock_of(*socket), messages = psock + places.messages;

	if (backlog_of(psock) > 0 || pointer_at(messages) != messages)
		return 0;
	/* A list that points to its own head is empty. */
	u64 head = pointer_at(*socket + places.wait_queue) + places.waiters;

	return pointer_at(head) != head;
}
