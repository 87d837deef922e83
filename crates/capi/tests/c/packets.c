/* Deploys a policy at the hooks below sockets: packets.c INTERFACE ADDRESS. Prints "cpus PORT" when packets of its
 * port go to a CPU, "frames" when they go to an AF_XDP socket, and "fine" once it got some by both ways. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle.h>

#include "check.h"

#define FRAMES 64
#define SIZE 2048

static int xdp_socket(const char *interface)
{
	int n = FRAMES, fd = socket(AF_XDP, SOCK_RAW, 0);
	struct xdp_mmap_offsets at;
	socklen_t size = sizeof at;
	void *memory = mmap(NULL, FRAMES * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct xdp_umem_reg area = {.addr = (uintptr_t)memory, .len = FRAMES * SIZE, .chunk_size = SIZE};
	struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY};

	CHECK(fd >= 0 && memory != MAP_FAILED);
	CHECK(!setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &area, sizeof area));
	CHECK(!setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &n, sizeof n));
	CHECK(!setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &n, sizeof n));
	CHECK(!setsockopt(fd, SOL_XDP, XDP_RX_RING, &n, sizeof n));
	CHECK(!getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size));
	char *fill = mmap(NULL, at.fr.desc + FRAMES * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, fd, XDP_UMEM_PGOFF_FILL_RING);
	CHECK(fill != MAP_FAILED);
	for (uint64_t k = 0; k < FRAMES; k++)
		((uint64_t *)(fill + at.fr.desc))[k] = k * SIZE;
	__atomic_store_n((uint32_t *)(fill + at.fr.producer), FRAMES, __ATOMIC_RELEASE);
	address.sxdp_ifindex = if_nametoindex(interface);
	CHECK(!bind(fd, (struct sockaddr *)&address, sizeof address));
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof at;
	int bound = socket(AF_INET, SOCK_DGRAM, 0), none = -1;
	uint32_t cpu = 0;
	char byte;

	CHECK(argc == 3 && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
	CHECK(!bind(bound, (struct sockaddr *)&at, sizeof at) && !getsockname(bound, (struct sockaddr *)&at, &size));
	alarm(120);
	struct hd_packets packets = {.interface = argv[1], .bound = &bound, .bound_count = 1};

	CHECK(hd_deploy("hash", "cpu-redirect", &bound, 1) == -EINVAL && strstr(hd_error(), "hd_deploy_packets"));
	CHECK(hd_deploy("hash", "stream", &bound, 1) == -EINVAL && strstr(hd_error(), "hd_stream_open"));
	CHECK(hd_deploy_packets("hash", "cpu-redirect", NULL, NULL, 0) == -EINVAL);
	CHECK(hd_deploy_packets("hash", "cpu-redirect", &packets, NULL, 0) == -EINVAL && strstr(hd_error(), "CPUs"));
	CHECK(hd_deploy_packets("hash", "xdp-skb", &packets, NULL, 0) == -EINVAL && strstr(hd_error(), "AF_XDP"));
	CHECK(hd_deploy_packets("hash", "socket-select", &packets, NULL, 0) == -EINVAL);
	CHECK(hd_deploy_packets("hash", "xdp-offload", &packets, NULL, 0) == -EOPNOTSUPP);
	packets.bound = &none;
	CHECK(hd_deploy_packets("hash", "cpu-redirect", &packets, NULL, 0) == -EINVAL);

	packets.bound = &bound;
	packets.cpus = &cpu;
	packets.cpu_count = 1;
	CHECK(hd_deploy_packets("hash", "xdp-skb", &packets, NULL, 0) == -EINVAL);
	int cpus = hd_deploy_packets("round-robin", "cpu-redirect", &packets, NULL, 0);
	CHECK(cpus > 0);
	printf("cpus %d %d\n", ntohs(at.sin_port), cpus);
	fflush(stdout);
	for (int k = 0; k < 3; k++)
		CHECK(recv(bound, &byte, 1, 0) == 1);
	CHECK(hd_replace(cpus, "hash") == 0 && hd_detach(cpus, -1) == 0);

	struct hd_xdp_socket frames = {.executor = 0, .queue = 0, .fd = xdp_socket(argv[1])};
	packets.cpu_count = 0;
	packets.sockets = &frames;
	packets.socket_count = 1;
	CHECK(hd_deploy_packets("hash", "cpu-redirect", &packets, NULL, 0) == -EINVAL);
	int sockets = hd_deploy_packets("round-robin", "xdp-skb", &packets, NULL, 0);
	CHECK(sockets > 0);
	puts("frames");
	fflush(stdout);
	struct pollfd ready = {.fd = frames.fd, .events = POLLIN};
	CHECK(poll(&ready, 1, -1) == 1 && ready.revents == POLLIN);
	CHECK(hd_detach(sockets, -1) == 0);
	puts("fine");
	return 0;
}
