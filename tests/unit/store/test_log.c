/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Logs: appended records are read back, both ways; a torn tail is cut; damage costs only the damaged record. */
#include "base/checksum.h"
#include "base/io.h"
#include "store/log/log.h"
#include "wayback/error.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[PLACE_SIZE];
static int dir_fd;

static void setup(void)
{
    make_place(directory, "log");
    dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir_fd, 0);
}

static void teardown(void)
{
    g_autoptr(GDir) dir = g_dir_open(directory, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(dir)))
        unlinkat(dir_fd, name, 0);
    close(dir_fd);
    rmdir(directory);
}

static struct wb_log *open_log(void)
{
    struct wb_log *log = NULL;

    ck_assert_int_eq(wb_log_open(&log, dir_fd, "log", true), 0);
    return log;
}

/* Record `n` has `when` n and a payload of `length` bytes made from n. */
static int append(struct wb_log *log, int64_t n, size_t length)
{
    g_autofree uint8_t *payload = g_malloc(length + 1);
    struct wb_record record = {
        .type = WB_REC_XATTR,
        .op = WB_OP_SETXATTR,
        .when = n,
        .xattr = {.object = {7, 7}, .present = 1, .name = "user.name", .name_length = 9},
    };
    struct iovec iov = {payload, length};
    int r;

    for (size_t i = 0; i < length; i++)
        payload[i] = (uint8_t)(n * 31 + (int64_t)i);
    pthread_mutex_lock(&log->lock);
    r = wb_log_append_locked(log, &record, &iov, length > 0);
    pthread_mutex_unlock(&log->lock);
    return r;
}

static int append_abort(struct wb_log *log, int64_t when, int64_t target)
{
    struct wb_record record = {.type = WB_REC_ABORT, .when = when, .abort.target = target};
    int r;

    pthread_mutex_lock(&log->lock);
    r = wb_log_append_locked(log, &record, NULL, 0);
    pthread_mutex_unlock(&log->lock);
    return r;
}

/* The result of a walk: the `when` of each record, -1 for a damaged region. */
static GArray *walk(bool backward)
{
    GArray *seen = g_array_new(false, false, sizeof(int64_t));
    int fd = openat(dir_fd, "log", O_RDONLY | O_CLOEXEC);
    struct wb_log_reader reader;
    struct wb_record record;
    int64_t damage = -1;
    int r;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    if (!backward)
        wb_log_reader_seek(&reader, 0);
    for (;;) {
        r = backward ? wb_log_reader_prev(&reader, &record) : wb_log_reader_next(&reader, &record);
        if (r == WB_END)
            break;
        ck_assert(r == 0 || r == WB_DAMAGED);
        if (r == 0)
            g_array_append_val(seen, record.when);
        else
            g_array_append_val(seen, damage);
        ck_assert_uint_lt(seen->len, 100000);
    }
    wb_log_reader_deinit(&reader);
    close(fd);
    return seen;
}

static void expect(bool backward, const char *wanted)
{
    g_autoptr(GArray) seen = walk(backward);
    g_autoptr(GString) text = g_string_new("");

    for (guint i = 0; i < seen->len; i++)
        g_string_append_printf(text, "%s%ld", i ? " " : "", (long)g_array_index(seen, int64_t, i));
    ck_assert_str_eq(text->str, wanted);
}

static GBytes *contents(void)
{
    g_autofree char *path = g_build_filename(directory, "log", NULL);
    char *data;
    gsize length;

    ck_assert(g_file_get_contents(path, &data, &length, NULL));
    return g_bytes_new_take(data, length);
}

static void put(const void *data, size_t length)
{
    int fd = openat(dir_fd, "log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_pwrite_full(fd, data, length, 0), 0);
    close(fd);
}

static uint64_t size_now(void)
{
    struct stat st;

    ck_assert_int_eq(fstatat(dir_fd, "log", &st, 0), 0);
    return (uint64_t)st.st_size;
}

START_TEST(records_are_read_in_both_directions_with_their_payload)
{
    static const size_t lengths[] = {0, 1, 7, 8, 4096, 70000, WB_PAYLOAD_MAX, 3};
    struct wb_log *log = open_log();
    struct wb_log_reader reader;
    struct wb_record record;
    int fd;

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++)
        ck_assert_int_eq(append(log, 1 + (int64_t)i, lengths[i]), 0);
    expect(false, "1 2 3 4 5 6 7 8");
    expect(true, "8 7 6 5 4 3 2 1");

    fd = openat(dir_fd, "log", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    for (int64_t n = G_N_ELEMENTS(lengths); n > 0; n--) {
        g_autofree uint8_t *data = g_malloc(WB_PAYLOAD_MAX);

        ck_assert_int_eq(wb_log_reader_prev(&reader, &record), 0);
        ck_assert_uint_eq(record.payload_length, lengths[n - 1]);
        ck_assert_int_eq(memcmp(record.xattr.name, "user.name", 9), 0);
        ck_assert_int_eq(wb_log_read_payload(fd, &record, data), 0);
        for (size_t i = 0; i < record.payload_length; i++)
            ck_assert_uint_eq(data[i], (uint8_t)(n * 31 + (int64_t)i));
    }
    ck_assert_int_eq(wb_log_reader_prev(&reader, &record), WB_END);
    wb_log_reader_deinit(&reader);
    close(fd);
    wb_log_free(log);
}
END_TEST

START_TEST(a_payload_in_pieces_is_one_payload)
{
    struct wb_log *log = open_log();
    struct wb_record record = {.type = WB_REC_XATTR, .when = 1,
                               .xattr = {{7, 7}, .present = 1, .name = "n", .name_length = 1}};
    struct iovec pieces[3] = {{(char[]){"abc"}, 3}, {NULL, 0}, {(char[]){"defgh"}, 5}};
    char data[8];

    pthread_mutex_lock(&log->lock);
    ck_assert_int_eq(wb_log_append_locked(log, &record, pieces, 3), 0);
    pthread_mutex_unlock(&log->lock);
    ck_assert_uint_eq(record.payload_length, 8);
    ck_assert_uint_eq(record.payload_check, wb_checksum("abcdefgh", 8));
    ck_assert_int_eq(wb_log_read_payload(log->fd, &record, data), 0);
    ck_assert_int_eq(memcmp(data, "abcdefgh", 8), 0);
    wb_log_free(log);
}
END_TEST

START_TEST(a_damaged_payload_is_reported_when_it_is_read)
{
    struct wb_log *log = open_log();
    struct wb_log_reader reader;
    struct wb_record record;
    uint8_t data[100];

    ck_assert_int_eq(append(log, 1, 100), 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, log->fd), 0);
    ck_assert_int_eq(wb_log_reader_prev(&reader, &record), 0);
    ck_assert_int_eq(wb_pwrite_full(log->fd, "\xff", 1, record.payload_offset + 50), 0);
    ck_assert_int_eq(wb_log_read_payload(log->fd, &record, data), -EBADMSG);
    wb_log_reader_deinit(&reader);
    wb_log_free(log);
}
END_TEST

START_TEST(opening_continues_at_the_end)
{
    struct wb_log *log = open_log();

    ck_assert_int_eq(append(log, 5, 10), 0);
    wb_log_free(log);
    log = open_log();
    ck_assert_int_eq(log->last_when, 5);
    ck_assert_uint_eq(log->tail, size_now());
    ck_assert_int_eq(append(log, 6, 10), 0);
    wb_log_free(log);
    expect(false, "5 6");
}
END_TEST

START_TEST(a_missing_log_is_not_made_unless_requested)
{
    struct wb_log *log = NULL;

    ck_assert_int_eq(wb_log_open(&log, dir_fd, "none", false), -ENOENT);
    ck_assert_int_eq(symlinkat("log", dir_fd, "link"), 0);
    ck_assert_int_eq(wb_log_open(&log, dir_fd, "link", true), -ELOOP);
}
END_TEST

START_TEST(a_tail_torn_at_any_byte_is_passed_over_and_then_cut)
{
    g_autoptr(GBytes) whole = NULL;
    uint64_t ends[4] = {0};
    const uint8_t *data;
    size_t length;
    struct wb_log *log = open_log();

    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(append(log, i, 20 * i), 0);
        ends[i] = log->tail;
    }
    wb_log_free(log);
    whole = contents();
    data = g_bytes_get_data(whole, &length);
    for (size_t cut = 0; cut <= length; cut++) {
        static const char *const forward[] = {"", "1", "1 2", "1 2 3"};
        static const char *const back[] = {"", "1", "2 1", "3 2 1"};
        static const char *const more[] = {"9", "1 9", "1 2 9", "1 2 3 9"};
        int kept = (cut >= ends[1]) + (cut >= ends[2]) + (cut >= ends[3]);

        put(data, cut);
        expect(false, forward[kept]);
        expect(true, back[kept]);
        log = open_log();
        ck_assert_uint_eq(log->tail, ends[kept]);
        ck_assert_uint_eq(size_now(), ends[kept]);
        ck_assert_int_eq(log->last_when, kept);
        ck_assert_int_eq(append(log, 9, 5), 0);
        wb_log_free(log);
        expect(false, more[kept]);
    }
}
END_TEST

START_TEST(a_tail_of_zeros_is_cut)
{
    g_autoptr(GBytes) whole = NULL;
    g_autofree uint8_t *copy = NULL;
    uint64_t end;
    size_t length;
    struct wb_log *log = open_log();

    ck_assert_int_eq(append(log, 1, 20), 0);
    end = log->tail;
    ck_assert_int_eq(append(log, 2, 9000), 0);
    wb_log_free(log);
    whole = contents();
    length = g_bytes_get_size(whole);

    /* Its first page never arrived, or nothing after some byte did. */
    for (size_t from = end; from < length; from += 8) {
        size_t to = from == end ? end + 4096 : length;

        g_free(copy);
        copy = g_memdup2(g_bytes_get_data(whole, NULL), length);
        memset(copy + from, 0, to - from);
        put(copy, length);
        expect(true, "1");
        log = open_log();
        ck_assert_uint_eq(log->tail, end);
        wb_log_free(log);
        expect(false, "1");
    }
}
END_TEST

/* The place of each byte of a record decides how much its damage may cost. */
static void check_damage_at(const uint8_t *data, size_t length, size_t at, const uint64_t *ends,
                            int victim, int last)
{
    g_autofree uint8_t *copy = g_memdup2(data, length);
    g_autoptr(GArray) back = NULL, forth = NULL;
    bool head = at < ends[victim - 1] + WB_HEAD_SIZE;
    guint count = (guint)last;

    copy[at] ^= 0x41;
    put(copy, length);
    back = walk(true);
    forth = walk(false);
    ck_assert_uint_eq(back->len, count);
    ck_assert_uint_eq(forth->len, count);
    for (int i = 1; i <= last; i++) {
        int64_t b = g_array_index(back, int64_t, last - i), f = g_array_index(forth, int64_t, i - 1);

        ck_assert_int_eq(b, f);
        if (i != victim)
            ck_assert_int_eq(f, i);
        else if (head)
            ck_assert_int_eq(f, -1);
        else
            ck_assert(f == i || f == -1);
    }
}

START_TEST(damage_to_any_byte_of_a_record_costs_that_record_only)
{
    g_autoptr(GBytes) whole = NULL;
    uint64_t ends[6] = {0};
    const uint8_t *data;
    size_t length;
    struct wb_log *log = open_log();

    for (int i = 1; i <= 5; i++) {
        ck_assert_int_eq(append(log, i, 20 + i), 0);
        ends[i] = log->tail;
    }
    wb_log_free(log);
    whole = contents();
    data = g_bytes_get_data(whole, &length);
    for (int victim = 1; victim <= 5; victim++)
        for (size_t at = ends[victim - 1]; at < ends[victim]; at++) {
            check_damage_at(data, length, at, ends, victim, 5);
            /* And no writer cuts it off. */
            log = open_log();
            ck_assert_uint_eq(log->tail, length);
            wb_log_free(log);
            ck_assert_uint_eq(size_now(), length);
        }
}
END_TEST

START_TEST(a_lost_region_costs_its_records)
{
    g_autoptr(GBytes) whole = NULL;
    g_autofree uint8_t *copy = NULL;
    uint64_t ends[8] = {0};
    size_t length;
    struct wb_log *log = open_log();

    for (int i = 1; i <= 7; i++) {
        ck_assert_int_eq(append(log, i, 100), 0);
        ends[i] = log->tail;
    }
    wb_log_free(log);
    whole = contents();
    length = g_bytes_get_size(whole);
    copy = g_memdup2(g_bytes_get_data(whole, NULL), length);
    memset(copy + ends[2] + 10, 0, ends[4] - ends[2]);
    put(copy, length);
    expect(true, "7 6 -1 2 1");
    expect(false, "1 2 -1 6 7");
    memset(copy, 0xa5, ends[6] + 1);
    put(copy, length);
    expect(true, "-1");
    log = open_log();
    ck_assert_uint_eq(log->tail, length);
    ck_assert_int_eq(append(log, 9, 1), 0);
    wb_log_free(log);
    expect(true, "9 -1");
    expect(false, "-1 9");
}
END_TEST

START_TEST(damage_before_a_torn_tail_is_kept_and_reported)
{
    g_autoptr(GBytes) whole = NULL;
    g_autofree uint8_t *copy = NULL;
    uint64_t ends[4] = {0};
    struct wb_log *log = open_log();

    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(append(log, i, 100), 0);
        ends[i] = log->tail;
    }
    wb_log_free(log);
    whole = contents();
    copy = g_memdup2(g_bytes_get_data(whole, NULL), g_bytes_get_size(whole));
    copy[ends[1] + 9] ^= 1;
    for (size_t cut = ends[2]; cut < ends[3]; cut++) {
        put(copy, cut);
        expect(true, "-1 1");
        log = open_log();
        ck_assert_uint_eq(size_now(), ends[2]);
        wb_log_free(log);
    }
}
END_TEST

START_TEST(a_log_inside_a_payload_is_not_part_of_the_log)
{
    g_autoptr(GBytes) inner = NULL;
    struct wb_log *log = open_log();
    static const char name[] = "userlogs";
    struct wb_record record = {
        .type = WB_REC_XATTR,
        .when = 10,
        .xattr = {.object = {7, 7}, .present = 1, .name = name, .name_length = strlen(name)},
    };
    struct iovec iov;
    uint64_t begin, end;

    for (int i = 100; i < 103; i++)
        ck_assert_int_eq(append(log, i, 40), 0);
    inner = contents();
    iov = (struct iovec){(void *)g_bytes_get_data(inner, NULL), g_bytes_get_size(inner)};
    wb_log_free(log);
    put("", 0);

    log = open_log();
    ck_assert_int_eq(append(log, 1, 10), 0);
    begin = log->tail;
    pthread_mutex_lock(&log->lock);
    /* The inner records must be on boundaries of 8, else nothing is shown. */
    ck_assert_int_eq(wb_log_append_locked(log, &record, &iov, 1), 0);
    ck_assert_uint_eq(record.payload_offset % 8, 0);
    pthread_mutex_unlock(&log->lock);
    end = log->tail;
    wb_log_free(log);

    /* Torn just where an inner record ends, and everywhere else. */
    inner = (g_bytes_unref(inner), contents());
    for (uint64_t cut = begin; cut < end; cut += 8) {
        bool at_inner_end = cut > record.payload_offset &&
                            !memcmp((const char *)g_bytes_get_data(inner, NULL) + cut - 4, "EWBK", 4);

        put(g_bytes_get_data(inner, NULL), cut);
        if (at_inner_end)
            continue;
        expect(true, "1");
        expect(false, "1");
    }
    put(g_bytes_get_data(inner, NULL), end);
    log = open_log();
    ck_assert_int_eq(append(log, 20, 10), 0);
    /* With its trailer gone, the record around them is still the nearest one. */
    ck_assert_int_eq(wb_pwrite_full(log->fd, "X", 1, end - 1), 0);
    expect(true, "20 10 1");
    ck_assert_int_eq(wb_pwrite_full(log->fd, "K", 1, end - 1), 0);
    ck_assert_int_eq(wb_pwrite_full(log->fd, "X", 1, begin), 0);
    wb_log_free(log);
    expect(true, "20 -1 1");
    expect(false, "1 -1 20");
}
END_TEST

START_TEST(a_failed_write_leaves_no_trace)
{
    struct wb_log *log = open_log();
    struct rlimit limit = {20000, RLIM_INFINITY}, old;
    uint64_t tail;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(append(log, 1, 10), 0);
    tail = log->tail;
    getrlimit(RLIMIT_FSIZE, &old);
    limit.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(append(log, 2, 100000), -EFBIG);
    setrlimit(RLIMIT_FSIZE, &old);
    ck_assert_uint_eq(log->tail, tail);
    ck_assert_uint_eq(size_now(), tail);
    ck_assert_int_eq(append(log, 3, 10), 0);
    wb_log_free(log);
    expect(true, "3 1");
}
END_TEST

START_TEST(aborted_changes_are_left_out)
{
    struct wb_log *log = open_log();
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    static const int64_t wanted[] = {208, 207, 4, 1};

    ck_assert_int_eq(append(log, 1, 0), 0);
    ck_assert_int_eq(append(log, 2, 0), 0);
    ck_assert_int_eq(append(log, 2, 5), 0);
    ck_assert_int_eq(append(log, 3, 0), 0);
    ck_assert_int_eq(append(log, 4, 0), 0);
    ck_assert_int_eq(append_abort(log, 5, 2), 0);
    ck_assert_int_eq(append_abort(log, 6, 3), 0);
    ck_assert_int_eq(append_abort(log, 6, 3), 0);
    /* One after the other, many more than are remembered. */
    for (int64_t when = 7; when < 207; when += 2) {
        ck_assert_int_eq(append(log, when, 0), 0);
        ck_assert_int_eq(append_abort(log, when + 1, when), 0);
    }
    ck_assert_int_eq(append(log, 207, 0), 0);
    ck_assert_int_eq(append(log, 208, 0), 0);
    wb_log_free(log);

    ck_assert_int_eq(wb_log_reader_init(&reader, openat(dir_fd, "log", O_RDONLY | O_CLOEXEC)), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(wanted); i++) {
        ck_assert_int_eq(wb_log_reader_prev_effective(&reader, &skip, &record), 0);
        ck_assert_int_eq(record.when, wanted[i]);
    }
    ck_assert_int_eq(wb_log_reader_prev_effective(&reader, &skip, &record), WB_END);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
}
END_TEST

#define RACE_RECORDS 3000

static void *race_writer(void *data)
{
    for (int64_t n = 1; n <= RACE_RECORDS; n++)
        ck_assert_int_eq(append(data, n, (size_t)(n % 97) * 101), 0);
    return NULL;
}

START_TEST(a_reader_beside_a_writer_sees_whole_records_only)
{
    struct wb_log *log = open_log();
    struct wb_log_reader reader;
    struct wb_record record;
    uint8_t data[10000];
    pthread_t thread;
    int64_t newest = 0, seen;
    int r;

    ck_assert_int_eq(wb_log_reader_init(&reader, openat(dir_fd, "log", O_RDONLY | O_CLOEXEC)), 0);
    pthread_create(&thread, NULL, race_writer, log);
    while (newest < RACE_RECORDS) {
        ck_assert_int_eq(wb_log_reader_refresh(&reader), 0);
        wb_log_reader_seek(&reader, reader.end);
        seen = 0;
        for (int i = 0; i < 20; i++) {
            r = wb_log_reader_prev(&reader, &record);
            if (r == WB_END)
                break;
            ck_assert_int_eq(r, 0);
            ck_assert(seen == 0 || record.when == seen - 1);
            seen = record.when;
            newest = MAX(newest, seen);
            ck_assert_int_eq(wb_log_read_payload(reader.fd, &record, data), 0);
        }
    }
    pthread_join(thread, NULL);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
    wb_log_free(log);
}
END_TEST

START_TEST(syncing_remembers_how_far)
{
    struct wb_log *log = open_log();

    ck_assert_int_eq(append(log, 1, 10), 0);
    ck_assert(!log->name_synced);
    ck_assert_int_eq(wb_log_sync(log, dir_fd, "log"), 0);
    ck_assert(log->name_synced);
    ck_assert_uint_eq(log->synced, log->tail);
    wb_log_free(log);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, records_are_read_in_both_directions_with_their_payload);
    tcase_add_test(tests, a_payload_in_pieces_is_one_payload);
    tcase_add_test(tests, a_damaged_payload_is_reported_when_it_is_read);
    tcase_add_test(tests, opening_continues_at_the_end);
    tcase_add_test(tests, a_missing_log_is_not_made_unless_requested);
    tcase_add_test(tests, a_tail_torn_at_any_byte_is_passed_over_and_then_cut);
    tcase_add_test(tests, a_tail_of_zeros_is_cut);
    tcase_add_test(tests, damage_to_any_byte_of_a_record_costs_that_record_only);
    tcase_add_test(tests, a_lost_region_costs_its_records);
    tcase_add_test(tests, damage_before_a_torn_tail_is_kept_and_reported);
    tcase_add_test(tests, a_log_inside_a_payload_is_not_part_of_the_log);
    tcase_add_test(tests, a_failed_write_leaves_no_trace);
    tcase_add_test(tests, aborted_changes_are_left_out);
    tcase_add_test(tests, a_reader_beside_a_writer_sees_whole_records_only);
    tcase_add_test(tests, syncing_remembers_how_far);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
