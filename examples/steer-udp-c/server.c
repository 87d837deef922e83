/* A UDP server with one thread per socket that deploys `scan-avoid` on itself: a thread marks itself while it works on
 * a long request, and short requests go to the others.
 *
 * Requests are one byte: 'G' takes no time, 'S' takes as long as the second argument says. The answer is the byte and
 * the thread's number. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <heddle.h>

#define THREADS 4
/* The class that scan-avoid avoids by default (parameter `class`). */
#define SCAN 3

static int attachment;
static int sockets[THREADS];
static long scan_ms;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* A socket on `port` of the IPv6 and IPv4 loopback; with port 0 the kernel chooses. */
static int shared_socket(uint16_t *port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(*port)};
	socklen_t size = sizeof at;
	int one = 1, fd = socket(AF_INET6, SOCK_DGRAM, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) ||
	    bind(fd, (struct sockaddr *)&at, sizeof at) || getsockname(fd, (struct sockaddr *)&at, &size)) {
		perror("socket");
		exit(1);
	}
	*port = ntohs(at.sin6_port);
	return fd;
}

static void work(char kind)
{
	struct timespec time = {scan_ms / 1000, scan_ms % 1000 * 1000000};

	if (kind != 'S')
		return;
	hd_busy(SCAN);
	nanosleep(&time, NULL);
	hd_idle();
}

static void *serve(void *argument)
{
	uint32_t k = (uint32_t)(uintptr_t)argument;
	struct sockaddr_storage peer;
	char buffer[2048];

	if (hd_executor_bind(attachment, k) < 0)
		die("hd_executor_bind", hd_error());
	for (;;) {
		socklen_t size = sizeof peer;
		ssize_t n = recvfrom(sockets[k], buffer, sizeof buffer, 0, (struct sockaddr *)&peer, &size);
		if (n < 1)
			continue;
		work(buffer[0]);
		buffer[1] = (char)('0' + k);
		sendto(sockets[k], buffer, 2, 0, (struct sockaddr *)&peer, size);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 0;
	pthread_t threads[THREADS];

	scan_ms = argc > 2 ? atol(argv[2]) : 50;
	for (int k = 0; k < THREADS; k++)
		sockets[k] = shared_socket(&port);
	attachment = hd_deploy("scan-avoid", "socket-select", sockets, THREADS);
	if (attachment < 0)
		die("hd_deploy", hd_error());
	for (uintptr_t k = 0; k < THREADS; k++)
		pthread_create(&threads[k], NULL, serve, (void *)k);
	printf("port %d attachment %d\n", port, attachment);
	fflush(stdout);
	/* Runs until its input closes. */
	while (getchar() != EOF)
		;
	if (hd_detach(attachment, sockets[0]) < 0)
		die("hd_detach", hd_error());
	return 0;
}
