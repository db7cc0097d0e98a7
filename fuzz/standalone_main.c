/* Runs a fuzz target over files, without libFuzzer.
 *
 *     fuzz_x PATH...      each file given, and each file of each directory given, in name order
 *
 * The target's own checks end the process, so the file that is being run is known from a signal
 * handler, which prints its name. Prints the number of inputs; exits with 1 if a path cannot be
 * read, or if there was nothing to run: a corpus that is not found must not pass. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static const char *running = ""; /* the file whose bytes are in the target now */
static size_t n_run;

/* Async-signal-safe: write(2) only. */
static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_crash(int signal_number)
{
    say("\nfailed on ");
    say(running);
    say("\n");
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Sanitizers end the process by _exit, not by a signal; they call this hook before. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    say("\nfailed on ");
    say(running);
    say("\n");
}

/* Reads a whole file into memory of exactly its size, so that a read past the end is found. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    uint8_t *bytes = NULL;
    long end = -1;
    if (fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0) {
        *size = (size_t)end;
        bytes = malloc(*size ? *size : 1);
        if (bytes && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

static int run_file(const char *path)
{
    size_t size = 0;
    uint8_t *bytes = read_file(path, &size);
    if (!bytes) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    running = path;
    LLVMFuzzerTestOneInput(bytes, size);
    running = "";
    free(bytes);
    n_run++;
    return 0;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int run_directory(const char *path)
{
    struct dirent **entries;
    int n_entries = scandir(path, &entries, not_hidden, alphasort);
    if (n_entries < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    int failed = 0;
    for (int i = 0; i < n_entries; i++) {
        size_t length = strlen(path) + strlen(entries[i]->d_name) + 2;
        char *file = malloc(length);
        if (file) {
            snprintf(file, length, "%s/%s", path, entries[i]->d_name);
            failed |= run_file(file);
        } else {
            failed = 1;
        }
        free(file);
        free(entries[i]);
    }
    free(entries);
    return failed;
}

static int run_path(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    return S_ISDIR(status.st_mode) ? run_directory(path) : run_file(path);
}

int main(int argc, char **argv)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], on_crash);
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= run_path(argv[i]);
    printf("%s: %zu inputs\n", argv[0], n_run);
    return failed || n_run == 0;
}
