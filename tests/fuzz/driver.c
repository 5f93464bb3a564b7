/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * driver COUNT SECONDS CORPUS [CPU_SECONDS SEED]: runs every file of the directory, then up to COUNT mutations of them,
 * the same ones every time, for at most so many seconds. With CPU_SECONDS and SEED: other mutations, for so many seconds
 * of CPU time, which may take SECONDS_MAX. An input that causes a fault is left in the file the first line names.
 */
#include "fuzz.h"
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define INPUT_MAX 16384
#define SECONDS_MAX 120
#define HANGS_AFTER 300 /* seconds one input may take: far more than any load explains */

static uint8_t current[INPUT_MAX];
static size_t current_length;
static char *leave_in;
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t random_u64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(random_u64() % limit) : 0;
}

static void leave_input(int number)
{
    int fd = open(leave_in, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd >= 0 && write(fd, current, current_length) == (ssize_t)current_length)
        close(fd);
    signal(number, SIG_DFL);
    raise(number);
}

/* Exactly as many bytes as there are, so that reading past them is seen. */
static void run(const uint8_t *data, size_t length)
{
    uint8_t *copy = g_memdup2(data, length);

    if (!copy)
        copy = g_malloc(1);
    memmove(current, data, length);
    current_length = length;
    alarm(HANGS_AFTER);
    LLVMFuzzerTestOneInput(copy, length);
    g_free(copy);
}

static size_t mutate(uint8_t *data, size_t length, const GBytes *other)
{
    static const uint8_t nasty[] = {0, 1, 0x7f, 0x80, 0xbf, 0xc0, 0xff, '/', '.', '@'};
    size_t size, at = below(length + 1), n;
    const uint8_t *bytes = g_bytes_get_data((GBytes *)other, &size);

    switch (below(6)) {
    case 0:
        if (at < length)
            data[at] ^= (uint8_t)(1u << below(8));
        return length;
    case 1:
        if (at < length)
            data[at] = nasty[below(sizeof(nasty))];
        return length;
    case 2: /* a part less */
        n = below(MIN(length - at, 64) + 1);
        memmove(data + at, data + at + n, length - at - n);
        return length - n;
    case 3: /* a part more */
        n = below(32);
        n = MIN(n, INPUT_MAX - length);
        memmove(data + at + n, data + at, length - at);
        for (size_t i = 0; i < n; i++)
            data[at + i] = (uint8_t)random_u64();
        return length + n;
    case 4: /* a part of another */
        n = below(size + 1);
        n = MIN(n, INPUT_MAX - at);
        if (n)
            memcpy(data + at, bytes + below(size - n + 1), n);
        return MAX(length, at + n);
    default:
        for (n = below(9); n > 0 && at < length; n--)
            data[at++] = 0xff;
        return length;
    }
}

static int compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static GPtrArray *read_corpus(const char *path)
{
    GPtrArray *all = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    GDir *dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir && (name = g_dir_read_name(dir)))
        g_ptr_array_add(names, g_build_filename(path, name, NULL));
    if (dir)
        g_dir_close(dir);
    g_ptr_array_sort(names, compare_names);
    for (guint i = 0; i < names->len; i++) {
        char *text;
        gsize length;

        if (g_file_get_contents(names->pdata[i], &text, &length, NULL))
            g_ptr_array_add(all, g_bytes_new_take(text, MIN(length, INPUT_MAX)));
    }
    return all;
}

struct limits {
    long count;
    int64_t until;         /* g_get_monotonic_time() */
    double processor_time; /* seconds */
};

static bool is_reached(const struct limits *limits, long done)
{
    return done >= limits->count || g_get_monotonic_time() >= limits->until ||
           (double)clock() / CLOCKS_PER_SEC >= limits->processor_time;
}

/* False: wrong arguments. */
static bool parse(int argc, char **argv, struct limits *ret)
{
    bool fresh = argc == 6;

    if (argc != 4 && !fresh)
        return false;
    *ret = (struct limits){
        .count = fresh ? LONG_MAX : atol(argv[1]),
        .until = g_get_monotonic_time() + (fresh ? SECONDS_MAX : atol(argv[2])) * G_USEC_PER_SEC,
        .processor_time = fresh ? atof(argv[4]) : G_MAXDOUBLE,
    };
    if (fresh)
        state ^= strtoull(argv[5], NULL, 10);
    return state != 0;
}

int main(int argc, char **argv)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
    static uint8_t data[INPUT_MAX];
    g_autoptr(GPtrArray) corpus = NULL;
    struct limits limits;
    long done = 0;

    if (!parse(argc, argv, &limits))
        return 2;
    corpus = read_corpus(argv[3]);
    leave_in = g_strdup_printf("%s/fuzz-input-%d", g_get_tmp_dir(), (int)getpid());
    printf("an input that does harm would be left in %s\n", leave_in);
    fflush(stdout);
    for (unsigned i = 0; i < G_N_ELEMENTS(deadly); i++)
        signal(deadly[i], leave_input);
    if (corpus->len == 0)
        return 2;
    for (guint i = 0; i < corpus->len; i++) {
        gsize length;
        const uint8_t *bytes = g_bytes_get_data(corpus->pdata[i], &length);

        run(bytes, length);
    }
    for (; !is_reached(&limits, done); done++) {
        gsize length;
        const uint8_t *bytes = g_bytes_get_data(corpus->pdata[below(corpus->len)], &length);

        if (length)
            memcpy(data, bytes, length);
        for (size_t n = 1 + below(6); n > 0; n--)
            length = mutate(data, length, corpus->pdata[below(corpus->len)]);
        run(data, length);
    }
    printf("%u files, %ld mutations, %.0f s of CPU time\n", corpus->len, done, (double)clock() / CLOCKS_PER_SEC);
    g_free(leave_in);
    return 0;
}
