/*
 * The least that sends UDP packets: sendmmsg in a loop, to compare packtrain's blast with.
 *
 *   udpblast ADDRESS PORT BYTES BATCH MILLISECONDS
 *
 * It sends datagrams of BYTES bytes to an IPv4 address, BATCH with each call, for a time, and
 * prints the number of datagrams and the time as one line of JSON. The datagrams are zeroes, all
 * from the same buffer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH_MAX = 1024 };

static void fail(const char *what)
{
    fprintf(stderr, "udpblast: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now(void)
{
    struct timespec time;

    if (clock_gettime(CLOCK_MONOTONIC, &time))
        fail("clock_gettime");
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    static char payload[65536];
    static struct mmsghdr messages[BATCH_MAX];
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct iovec piece = {.iov_base = payload};
    unsigned long long packets = 0;
    long long start, end, time;
    int fd, batch;

    if (argc != 6 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
        fprintf(stderr, "usage: udpblast ADDRESS PORT BYTES BATCH MILLISECONDS\n");
        return 2;
    }
    to.sin_port = htons(atoi(argv[2]));
    piece.iov_len = atoi(argv[3]);
    batch = atoi(argv[4]);
    if (batch < 1 || batch > BATCH_MAX || piece.iov_len > sizeof payload) {
        fprintf(stderr, "udpblast: BATCH is 1 to %d, BYTES at most %zu\n", BATCH_MAX, sizeof payload);
        return 2;
    }
    for (int i = 0; i < batch; i++) {
        messages[i].msg_hdr.msg_iov = &piece;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        fail("connect");
    start = now();
    end = start + atoll(argv[5]) * 1000000;
    while ((time = now()) < end) {
        int sent = sendmmsg(fd, messages, batch, 0);

        if (sent > 0)
            packets += sent;
        else if (errno != ENOBUFS && errno != EINTR)
            fail("sendmmsg");
    }
    printf("{\"packets\":%llu,\"nanoseconds\":%lld}\n", packets, time - start);
    return 0;
}
