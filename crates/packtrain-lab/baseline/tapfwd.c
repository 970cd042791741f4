/*
 * A minimal forwarder between two TAP interfaces, to compare packtrain with.
 *
 *   tapfwd A B vnet|plain THREADS
 *
 * vnet: a virtio-net header in front of every packet, and all of the kernel's offloads; headers
 * are passed on unchanged. plain: neither. With one thread, it alternates between the directions;
 * with two, each serves one. It prints "ready" when both interfaces are open. It ends on SIGTERM, or
 * when its standard input is a pipe whose other end closes, and then prints its counters as one
 * line of JSON.
 *
 * It makes one read and one write for a packet, with the same buffer, which stays in cache, and
 * calls poll only if no packet can be read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Headers older than the kernel (6.2) may lack these. */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

enum {
    BATCH = 64,           /* packets of one direction before the other is served */
    BUFFER_BYTES = 73728, /* a whole GSO packet with its headers, in pages */
    VNET_HEADER_BYTES = 12,
    /* A thread that did not get the signal notices the end within this time. */
    POLL_MS = 200,
};

struct direction {
    int from, to;
    unsigned char *buffer;
    unsigned long packets, bytes, errors, reads, writes, polls;
} __attribute__((aligned(128)));

static struct direction directions[2];
static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static void fail(const char *what)
{
    fprintf(stderr, "tapfwd: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_tap(const char *name, int vnet)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | (vnet ? IFF_VNET_HDR : 0)};
    int header_bytes = VNET_HEADER_BYTES;
    unsigned long offloads =
        TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN | TUN_F_USO4 | TUN_F_USO6;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        fail("open /dev/net/tun");
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (ioctl(fd, TUNSETIFF, &request))
        fail("TUNSETIFF");
    if (!vnet)
        return fd;
    if (ioctl(fd, TUNSETVNETHDRSZ, &header_bytes))
        fail("TUNSETVNETHDRSZ");
    if (ioctl(fd, TUNSETOFFLOAD, offloads) &&
        ioctl(fd, TUNSETOFFLOAD, offloads & ~(unsigned long)(TUN_F_USO4 | TUN_F_USO6)))
        fail("TUNSETOFFLOAD");
    return fd;
}

/* Waits for a packet on some of the descriptors; the last one is for the end of standard input. */
static void wait_for(struct pollfd *wait, nfds_t count)
{
    /* No event is asked for: the end is always reported, as POLLHUP. */
    wait[count - 1] = (struct pollfd){.fd = STDIN_FILENO};
    if (poll(wait, count, POLL_MS) > 0 && wait[count - 1].revents)
        stopped = 1;
}

/* Forwards at most a batch in one direction; returns the number of packets. */
static int pump(struct direction *d)
{
    int packets = 0;

    while (packets < BATCH) {
        ssize_t bytes = read(d->from, d->buffer, BUFFER_BYTES);
        d->reads++;
        if (bytes < 0) {
            if (errno == EINTR)
                continue;
            /* A link that is not up has no packets either. */
            if (errno != EAGAIN && errno != EIO)
                d->errors++;
            break;
        }
        d->writes++;
        if (write(d->to, d->buffer, (size_t)bytes) != bytes)
            d->errors++;
        d->bytes += (unsigned long)bytes;
        packets++;
    }
    d->packets += (unsigned long)packets;
    return packets;
}

static void *one_way(void *argument)
{
    struct direction *d = argument;

    while (!stopped) {
        if (pump(d) == 0) {
            struct pollfd wait[2] = {{.fd = d->from, .events = POLLIN}};
            d->polls++;
            wait_for(wait, 2);
        }
    }
    return NULL;
}

static void both_ways(void)
{
    while (!stopped) {
        if (pump(&directions[0]) + pump(&directions[1]) == 0) {
            struct pollfd wait[3] = {
                {.fd = directions[0].from, .events = POLLIN},
                {.fd = directions[1].from, .events = POLLIN},
            };
            directions[0].polls++;
            wait_for(wait, 3);
        }
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = stop};
    unsigned long packets, bytes, errors, syscalls;
    int vnet, threads;
    pthread_t thread;

    if (argc != 5) {
        fprintf(stderr, "usage: tapfwd A B vnet|plain THREADS\n");
        return 2;
    }
    vnet = strcmp(argv[3], "vnet") == 0;
    threads = atoi(argv[4]);
    for (int i = 0; i < 2; i++) {
        directions[i].buffer = aligned_alloc(4096, BUFFER_BYTES);
        if (!directions[i].buffer)
            fail("allocate a buffer");
        directions[i].from = directions[!i].to = open_tap(argv[1 + i], vnet);
    }
    sigaction(SIGTERM, &action, NULL);
    puts("ready");
    fflush(stdout);

    if (threads == 2) {
        if (pthread_create(&thread, NULL, one_way, &directions[1]))
            fail("start a thread");
        one_way(&directions[0]);
        pthread_join(thread, NULL);
    } else {
        both_ways();
    }

    packets = directions[0].packets + directions[1].packets;
    bytes = directions[0].bytes + directions[1].bytes;
    errors = directions[0].errors + directions[1].errors;
    syscalls = directions[0].reads + directions[0].writes + directions[0].polls +
               directions[1].reads + directions[1].writes + directions[1].polls;
    printf("{\"packets\":%lu,\"bytes\":%lu,\"errors\":%lu,\"syscalls\":%lu,\"sleeps\":%lu}\n",
           packets, bytes, errors, syscalls, directions[0].polls + directions[1].polls);
    return 0;
}
