/* Links over shared memory: how large their memory is, and descriptors of every number. */
#define _GNU_SOURCE

#include "transfer_world.h"

#include "base/bytes.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = 1024, PAGE = 4096, HELLO = 24 };

/* A place is 48 bytes and the message, in lines of 64; the memory whole pages. */
TEST(sizes_of_memory)
{
    static const struct {
        uint32_t max_message, n_messages;
        uint64_t bytes;
    } cases[] = {{1040, 64, PAGE + 64 * 1088},
                 {1041, 64, PAGE + 64 * 1152},
                 {1040, 65, PAGE + 64 * 1088 + PAGE},
                 {1024, 65536, PAGE + (uint64_t)65536 * 1088}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int sockets[2];
        kvp_shm *shm;
        uint8_t hello[HELLO];
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
        assert_ok(kvp_shm_open(sockets[0], cases[i].max_message, cases[i].n_messages, &shm, NULL));
        assert_int_equal(recv(sockets[1], hello, HELLO, 0), HELLO);
        assert_int_equal(kvpi_bytes_load(hello + 8, 4), cases[i].max_message);
        assert_int_equal(kvpi_bytes_load(hello + 12, 4), cases[i].n_messages);
        assert_int_equal(kvpi_bytes_load(hello + 16, 8), cases[i].bytes);
        kvp_shm_close(shm);
        (void)close(sockets[0]);
        (void)close(sockets[1]);
    }
}

/* A process without standard input: descriptor 0 is one like the others. */
TEST(descriptor_0)
{
    int sockets[2];
    kvp_shm *shm[2];
    kvp_link end;
    if (fcntl(0, F_GETFD) < 0)
        assert_int_equal(open("/dev/null", O_RDONLY), 0);
    const int kept = dup(0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    (void)close(0);
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_shm_open(sockets[i], MESSAGE, 1, &shm[i], NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_shm_connect(shm[i], &end, NULL));
    for (int i = 0; i < 2; i++) {
        kvp_shm_close(shm[i]);
        (void)close(sockets[i]);
    }
    assert_int_equal(fcntl(0, F_GETFD), -1);
    assert_int_equal(dup2(kept, 0), 0);
    (void)close(kept);
}

int main(void)
{
    int sockets[2];
    kvp_shm *shm = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    if (kvp_shm_open(sockets[0], MESSAGE, 1, &shm, NULL) == KVP_E_IO) {
        printf("skipped: no sealed memory here\n");
        return 77;
    }
    kvp_shm_close(shm);
    return run_all_tests(NULL, NULL);
}
