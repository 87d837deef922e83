/* Calls everything in client.h. Prints an error and exits with 1, or prints "fine". Runs with HEDDLE_SOCKET
 * or as root. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <heddle.h>

#include "check.h"

#define N 3

static struct sockaddr_in at = {.sin_family = AF_INET};

static int member(void)
{
	socklen_t size = sizeof at;
	int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
	CHECK(!bind(fd, (struct sockaddr *)&at, sizeof at) && !getsockname(fd, (struct sockaddr *)&at, &size));
	return fd;
}

/* Sends `n` datagrams and counts what each socket receives. */
static void traffic(const int *fds, int count, int n, int *got)
{
	int client = socket(AF_INET, SOCK_DGRAM, 0);
	char byte = 'x';

	memset(got, 0, sizeof *got * count);
	for (int i = 0; i < n; i++) {
		CHECK(sendto(client, &byte, 1, 0, (struct sockaddr *)&at, sizeof at) == 1);
		for (int k = 0; k < count; k++)
			while (recv(fds[k], &byte, 1, 0) > 0)
				got[k]++;
	}
	close(client);
}

static void failures(const int *fds)
{
	int none = -1, closed = 999;

	CHECK(hd_deploy(NULL, "socket-select", fds, N) == -EINVAL && strstr(hd_error(), "policy is NULL"));
	CHECK(hd_deploy("hash", "nowhere", fds, N) == -EINVAL && strstr(hd_error(), "xdp-drv"));
	CHECK(hd_deploy("chance", "socket-select", fds, N) == -ENOENT);
	CHECK(hd_deploy("hash", "socket-select", NULL, N) == -EINVAL);
	CHECK(hd_deploy("hash", "socket-select", fds, 0) == -EINVAL);
	CHECK(hd_deploy("hash", "socket-select", &none, 1) == -EINVAL);
	CHECK(hd_deploy("hash", "socket-select", &closed, 1) < 0);
	CHECK(hd_deploy("sita:chance=1", "socket-select", fds, N) == -EINVAL);
	CHECK(hd_detach(123456, -1) == -ENOENT && hd_detach(-1, -1) == -EINVAL);
	CHECK(!hd_map_open("123456/choice") && !hd_map_open("choice") && !hd_map_open(NULL));
	CHECK(hd_map_lookup(NULL, fds, &none) == -EINVAL && hd_map_update(NULL, fds, fds) == -EINVAL);
	CHECK(!hd_map_mmap(NULL));
	CHECK(hd_executor_bind(123456, 0) == -ENOENT);
	hd_map_close(NULL);
	/* Not bound: no effect. */
	hd_busy(1);
	hd_idle();
}

static hd_map *open_map(int attachment, const char *name)
{
	char path[64];
	hd_map *map;

	snprintf(path, sizeof path, "%d/%s", attachment, name);
	map = hd_map_open(path);
	CHECK(map);
	return map;
}

static void maps(int attachment, const char *policy, const int *fds)
{
	hd_map *map = open_map(attachment, "choice");
	struct hd_map_shape shape;
	uint32_t key = 0, value[16] = {0};
	int got[N];

	CHECK(hd_map_shape(map, &shape) == 0);
	CHECK(shape.key_size == 4 && shape.value_size == 64 && shape.entries == 1 && shape.stride == 64);
	value[0] = 2;
	CHECK(hd_map_update(map, &key, value) == 0);
	traffic(fds, N, 5, got);
	CHECK(got[2] == 5);
	memset(value, 0, sizeof value);
	CHECK(hd_map_lookup(map, &key, value) == 0 && value[0] == 2);
	key = 1;
	CHECK(hd_map_lookup(map, &key, value) == -ENOENT);
	_Atomic uint32_t *memory = hd_map_mmap(map);
	CHECK(memory && *memory == 2 && memory == hd_map_mmap(map));
	*memory = 1;
	traffic(fds, N, 5, got);
	CHECK(got[1] == 5);

	/* Another group with the same map. */
	struct sockaddr_in first = at;
	at.sin_port = 0;
	int others[N] = {member(), member(), member()};
	struct hd_share share = {"choice", map};
	int other = hd_deploy_sharing(policy, "socket-select", others, N, &share, 1);
	CHECK(other > 0);
	*memory = 0;
	traffic(others, N, 5, got);
	CHECK(got[0] == 5);
	CHECK(hd_detach(other, others[0]) == 0);
	for (int k = 0; k < N; k++)
		close(others[k]);
	at = first;
	hd_map_close(map);
}

static void executors(int attachment, const int *fds)
{
	int got[N + 1], all[N + 1] = {fds[0], fds[1], fds[2], member()};

	CHECK(hd_replace(attachment, "scan-avoid:class=7") == 0);
	CHECK(hd_executor_add(attachment, all[N], -1) == N);
	/* All but the last are busy with something long. */
	for (uint32_t k = 0; k < N; k++) {
		CHECK(hd_executor_bind(attachment, k) == 0);
		hd_busy(7);
	}
	traffic(all, N + 1, 40, got);
	CHECK(got[N] == 40);
	hd_idle();
	traffic(all, N + 1, 100, got);
	CHECK(got[0] == 0 && got[1] == 0 && got[2] > 0 && got[3] > 0);
	CHECK(hd_executor_bind(attachment, 64) == -EINVAL);
	hd_map *lines = open_map(attachment, "hd_lines");
	const uint32_t *line = hd_map_mmap(lines);
	CHECK(line && line[0] == 7 && line[16] == 7 && line[32] == 0);
	hd_map_close(lines);
}

int main(int argc, char **argv)
{
	int got[N], fds[N];

	(void)argc;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int k = 0; k < N; k++)
		fds[k] = member();
	CHECK(*hd_error() == 0);
	failures(fds);
	int attachment = hd_deploy(argv[1], "socket-select", fds, N);
	CHECK(attachment > 0);
	CHECK(hd_deploy(argv[1], "socket-select", fds, N) == -EBUSY);
	maps(attachment, argv[1], fds);
	executors(attachment, fds);
	CHECK(hd_replace(attachment, "round-robin") == 0);
	traffic(fds, N, 1, got);
	CHECK(hd_detach(attachment, fds[0]) == 0);
	CHECK(hd_detach(attachment, -1) == -ENOENT);
	puts("fine");
	return 0;
}
