/* The kernel's own view of executors that are sockets: how much waits, and whether a thread waits for more, on the
 * socket or in an epoll that holds it. It reads kernel memory, which policies may not; so it is Heddle's, and linked to
 * the policies that need it. */
#include "hooks.h"

static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;

/* Offsets in the kernel's types, in bytes; set before the program is loaded. */
struct layout {
	u32 receive_queue_length; /* struct sock: sk_receive_queue.qlen */
	u32 reader_queue_length;  /* struct udp_sock: reader_queue.qlen */
	u32 accept_queue_length;  /* struct sock: sk_ack_backlog */
	u32 request_count;	  /* struct inet_connection_sock: icsk_accept_queue.qlen */
	u32 wait_queue;		  /* struct sock: sk_wq */
	u32 waiters;		  /* struct socket_wq: wait */
	u32 first_waiter;	  /* struct wait_queue_head: head */
	u32 cookie;		  /* struct sock: __sk_common.skc_cookie */
	u32 references;		  /* struct sock: __sk_common.skc_refcnt.refs.counter */
};

/* The offsets in what waits on a socket. */
struct waits {
	u32 list;	  /* struct wait_queue_entry: entry */
	u32 thread;	  /* struct wait_queue_entry: private; none if not a thread waits but an epoll */
	u32 entry;	  /* struct eppoll_entry: wait */
	u32 queue;	  /* struct eppoll_entry: whead */
	u32 item;	  /* struct eppoll_entry: base */
	u32 epoll;	  /* struct epitem: ep */
	u32 epoll_waiters; /* struct eventpoll: wq */
};

const volatile struct waits waits HD_SECTION(".hd.hd_waits_constants") = {};

const volatile struct layout layout HD_SECTION(".hd.hd_layout_constants") = {};

/* The offsets in the reuseport group of a socket. */
struct group {
	u32 of_socket; /* struct sock: sk_reuseport_cb */
	u32 sockets;   /* struct sock_reuseport: num_socks */
};

const volatile struct group group HD_SECTION(".hd.hd_group_constants") = {};

#define NO_SOCKET 0
#define DATAGRAMS 1
#define CONNECTIONS 2

/* The queue length of an absent executor: longer than any, and less than HD_PASS. */
#define ABSENT 0x7fffffff

/* The sockets of the executors: their kernel addresses, and their numbers, which the kernel never reuses. A socket
 * without references is gone; if the number differs, its memory was reused for something else, which no policy may
 * see. The kernel frees sockets when no program runs that could have found them. */
struct hd_socket {
	u64 place; /* its address, and what it is: addresses are multiples of eight */
	u64 cookie;
};

#define KIND 7

HD_OWN_MAP(hd_sockets, HD_KIND_ARRAY, 4, sizeof(struct hd_socket), HD_FEW);
typedef struct hd_socket hd_sockets_value;

HD_INLINE u32 number_at(u64 address)
{
	u32 number = 0;

	read_kernel(&number, sizeof number, (void *)address);
	return number;
}

HD_INLINE u64 pointer_at(u64 address)
{
	u64 pointer = 0;

	read_kernel(&pointer, sizeof pointer, (void *)address);
	return pointer;
}

/* Returns the address of executor k's socket, and its kind; 0 if it has no socket any more. */
HD_INLINE u64 place_of(u32 k)
{
	struct hd_socket *socket = hd_at(hd_sockets, k);
	u64 place = socket ? socket->place : NO_SOCKET;
	u64 at = place & ~(u64)KIND;

	if (!place || pointer_at(at + layout.cookie) != socket->cookie || !number_at(at + layout.references))
		return NO_SOCKET;
	return place;
}

HD_INLINE u32 waiting(u64 place)
{
	u64 at = place & ~(u64)KIND;

	if ((place & KIND) == DATAGRAMS)
		return number_at(at + layout.receive_queue_length) + number_at(at + layout.reader_queue_length);
	if ((place & KIND) == CONNECTIONS)
		return number_at(at + layout.accept_queue_length) + number_at(at + layout.request_count);
	return 0;
}

__attribute__((noinline)) u32 hd_qlen(u32 k)
{
	u64 place = place_of(k);

	/* An absent executor must not be chosen for being idle. */
	return place ? waiting(place) : ABSENT;
}

/* Returns whether a list of the kernel has a member. One that points to its own head has none. */
HD_INLINE u32 has_member(u64 head)
{
	u64 first = pointer_at(head);

	return first && first != head;
}

/* Returns whether the entry at `entry` of the wait queue `queue` stands for a thread that waits now. An epoll's entry
 * is always there; a thread waits if one does in that epoll. Read without a lock: the entry may go meanwhile, and a
 * wrong answer is the worst result. */
HD_INLINE u32 is_waiting(u64 entry, u64 queue)
{
	u64 epoll = entry - waits.entry;

	if (pointer_at(entry + waits.thread) || pointer_at(epoll + waits.queue) != queue)
		return 1;
	u64 of = pointer_at(pointer_at(epoll + waits.item) + waits.epoll);

	return of && has_member(of + waits.epoll_waiters + layout.first_waiter);
}

/* The most entries of a wait queue to look at: a thread or an epoll for each thread that serves the socket. */
#define WAITERS 4

__attribute__((noinline)) u32 hd_idle(u32 k)
{
	u64 place = place_of(k);

	if (!place || waiting(place) > 0)
		return 0;
	u64 queue = pointer_at((place & ~(u64)KIND) + layout.wait_queue);

	if (!queue)
		return 0;
	queue += layout.waiters;
	u64 head = queue + layout.first_waiter, at = pointer_at(head);

	for (u32 i = 0; i < WAITERS && at && at != head; i++) {
		if (is_waiting(at - waits.list, queue))
			return 1;
		at = pointer_at(at);
	}
	return 0;
}

/* Returns the number of sockets in the group of executor `k`; 0 if the executor has no socket any more. Not for
 * policies. */
__attribute__((noinline)) u32 hd_group_size(u32 k)
{
	u64 place = place_of(k);
	u64 of = place ? pointer_at((place & ~(u64)KIND) + group.of_socket) : 0;
	u16 sockets = 0;

	if (of)
		read_kernel(&sockets, sizeof sockets, (void *)(of + group.sockets));
	return sockets;
}
