/* Snapshots in files of a real disk: what is replaced, what is not, and what a full disk leaves. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"

TEST(test_a_real_file_is_replaced)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    struct stat about;
    write_file(f.file, "old");
    assert_ok(save_to(&s, f.file, NULL));
    assert_file(f.file, &s.new);
    assert_int_equal(stat(f.file, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(chdir(f.path), 0);
    assert_int_equal(unlink(f.file), 0);
    assert_ok(save_to(&s, NAME, NULL)); /* in the folder that one is in */
    assert_file(f.file, &s.new);
    assert_int_equal(chdir("/"), 0);
    end_folder(&f);
}

/* A limit of the file's size stands for the full disk. */
TEST(test_a_full_disk_leaves_the_old_one)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    struct rlimit before, small;
    int said = 0;
    assert_ok(save_to(&s, f.file, NULL));
    leave_cached(&s.w, ints(2000), 8);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const kvp_status status = save_to(&s, f.file, &said);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_status(KVP_E_IO, status);
    assert_int_equal(said, EFBIG);
    assert_file(f.file, &s.new);
    end_folder(&f);
}

TEST(test_what_is_no_file_stays)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    struct stat about;
    char deeper[sizeof(f.file)];
    int said = 0;
    snprintf(deeper, sizeof(deeper), "%s/none/" NAME, f.path);
    assert_status(KVP_E_IO, save_to(&s, deeper, &said));
    assert_int_equal(said, ENOENT);
    assert_status(KVP_E_IO, save_to(&s, f.path, &said));
    assert_int_equal(said, EISDIR);
    assert_int_equal(symlink(deeper, f.file), 0);
    assert_status(KVP_E_IO, save_to(&s, f.file, &said));
    assert_int_equal(said, ELOOP);
    assert_int_equal(lstat(f.file, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(unlink(f.file), 0);
    assert_int_equal(mkfifo(f.file, 0600), 0); /* which nobody reads: no open may wait for it */
    assert_status(KVP_E_IO, save_to(&s, f.file, &said));
    assert_int_equal(said, ENOTSUP);
    assert_status(KVP_E_IO, save_to(&s, "/dev/full", &said));
    assert_int_equal(said, ENOTSUP);
    assert_int_equal(stat("/dev/full", &about), 0);
    assert_true(S_ISCHR(about.st_mode));
    end_folder(&f);
}

/* A part that is a link, put there by somebody else, is not written through. */
TEST(test_a_link_in_the_parts_place)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    char victim[sizeof(f.file)];
    const disk_bytes precious = {(uint8_t *)"precious", 8};
    snprintf(victim, sizeof(victim), "%s/victim", f.path);
    write_file(victim, "precious");
    assert_int_equal(symlink(victim, f.part), 0);
    assert_ok(save_to(&s, f.file, NULL));
    assert_file(f.file, &s.new);
    assert_file(victim, &precious);
    assert_int_equal(unlink(f.part), 0);
    assert_int_equal(unlink(victim), 0);
    end_folder(&f);
}

TEST_MAIN(NULL, NULL)
