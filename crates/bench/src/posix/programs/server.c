/* A plain HTTP server with a thread for each connection: GET /get/N is short, GET /scan/N long.
 *
 * Usage: server --calibrate, which prints {"ns_per_loop": 1.9}, or server GET_LOOPS SCAN_LOOPS [--nice], which prints
 * `ready http=127.0.0.1:PORT` and serves until its standard input ends. With --nice a thread lowers its priority to
 * nice 19 at its first SCAN. */
#include "program.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_HEAD 1024

static uint64_t get_loops, scan_loops;
static int with_nice;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t served;

static uint64_t count_request(void)
{
	pthread_mutex_lock(&lock);
	uint64_t number = ++served;
	pthread_mutex_unlock(&lock);
	return number;
}

/* Reads one request, without pipelining; returns 0 at the end of the connection. */
static int read_request(int connection, char *head)
{
	size_t length = 0;
	while (length < MOST_HEAD - 1) {
		ssize_t count = recv(connection, head + length, MOST_HEAD - 1 - length, 0);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return 0;
		length += (size_t)count;
		head[length] = 0;
		if (strstr(head, "\r\n\r\n"))
			return 1;
	}
	return 0;
}

static int answer(int connection, const char *status, uint64_t result)
{
	char text[128];
	int length = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: 16\r\n\r\n%016llx", status,
			      (unsigned long long)result);
	return send(connection, text, (size_t)length, MSG_NOSIGNAL) == length;
}

static void *serve(void *arg)
{
	int connection = (int)(intptr_t)arg, lowered = 0, alive = 1;
	char head[MOST_HEAD];
	while (alive && read_request(connection, head)) {
		uint64_t seed = count_request();
		int is_scan = strncmp(head, "GET /scan/", 10) == 0;
		if (!is_scan && strncmp(head, "GET /get/", 9) != 0) {
			alive = answer(connection, "404 Not Found", 0);
			continue;
		}
		if (is_scan && with_nice && !lowered) {
			/* On Linux this is the calling thread alone. */
			sure(setpriority(PRIO_PROCESS, 0, 19), "setpriority");
			lowered = 1;
		}
		alive = answer(connection, "200 OK", compute(is_scan ? scan_loops : get_loops, seed));
	}
	close(connection);
	return NULL;
}

static void *accept_all(void *arg)
{
	int listener = (int)(intptr_t)arg, yes = 1;
	pthread_attr_t detached;
	check(pthread_attr_init(&detached), "pthread_attr_init");
	check(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED), "pthread_attr_setdetachstate");
	for (;;) {
		pthread_t thread;
		int connection = accept(listener, NULL, NULL);
		if (connection < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		sure(connection, "accept");
		sure(setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), "setsockopt");
		check(pthread_create(&thread, &detached, serve, (void *)(intptr_t)connection), "pthread_create");
	}
	return NULL;
}

/* Loopback only. */
static int open_listener(struct sockaddr_in *address)
{
	socklen_t length = sizeof *address;
	int listener = (int)sure(socket(AF_INET, SOCK_STREAM, 0), "socket");
	memset(address, 0, sizeof *address);
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sure(bind(listener, (struct sockaddr *)address, sizeof *address), "bind");
	sure(listen(listener, 512), "listen");
	sure(getsockname(listener, (struct sockaddr *)address, &length), "getsockname");
	return listener;
}

/* The fastest of many short runs: others only add time. */
static void calibrate(void)
{
	const uint64_t loops = 200000;
	uint64_t least = UINT64_MAX, sum = 0;
	for (int i = 0; i < 50; i++) {
		uint64_t begin = read_clock(CLOCK_THREAD_CPUTIME_ID);
		sum += compute(loops, (uint64_t)i);
		uint64_t took = read_clock(CLOCK_THREAD_CPUTIME_ID) - begin;
		least = took < least ? took : least;
	}
	printf("{\"ns_per_loop\": %.4f, \"sum\": %llu}\n", (double)least / (double)loops, (unsigned long long)sum % 1000);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--calibrate") == 0) {
		calibrate();
		return 0;
	}
	with_nice = argc == 4 && strcmp(argv[3], "--nice") == 0;
	if (argc != 3 && !with_nice) {
		fprintf(stderr, "usage: server --calibrate | server GET_LOOPS SCAN_LOOPS [--nice]\n");
		return 2;
	}
	get_loops = (uint64_t)number(argv[1], 1, "GET_LOOPS");
	scan_loops = (uint64_t)number(argv[2], 1, "SCAN_LOOPS");
	struct sockaddr_in address;
	int listener = open_listener(&address);
	start(accept_all, (void *)(intptr_t)listener);
	printf("ready http=127.0.0.1:%d\n", ntohs(address.sin_port));
	fflush(stdout);
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
}
