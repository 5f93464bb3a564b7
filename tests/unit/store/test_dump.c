/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/cleanup.h"
#include "base/io.h"
#include "random_record.h"
#include "store/log/log.h"
#include "wayback/dump.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <json-glib/json-glib.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Logs as text and as JSON: every record one line, every byte that is no record named. */

static char dir_path[PLACE_SIZE], log_path[PLACE_SIZE + 16];
static int dir_fd;

static void make_dir(void)
{
    setenv("TZ", "Europe/Berlin", 1);
    make_place(dir_path, "dump");
    dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir_fd, 0);
    snprintf(log_path, sizeof(log_path), "%s/log", dir_path);
}

static void remove_dir(void)
{
    unlinkat(dir_fd, "log", 0);
    close(dir_fd);
    rmdir(dir_path);
}

static void append(struct wb_record *record, const void *payload, size_t length)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)payload, .iov_len = length};
    struct wb_log *log;

    ck_assert_int_eq(wb_log_open(&log, dir_fd, "log", true), 0);
    pthread_mutex_lock(&log->lock);
    ck_assert_int_eq(wb_log_append_locked(log, record, &iov, length ? 1 : 0), 0);
    pthread_mutex_unlock(&log->lock);
    wb_log_free(log);
}

/* The text, to be freed. */
static char *dump(unsigned flags, int expected, struct wb_dump_count *count)
{
    struct wb_error why;
    size_t length;
    char *text;
    FILE *out = open_memstream(&text, &length);

    ck_assert_int_eq(wb_dump_log(log_path, out, flags, count, &why), expected);
    fclose(out);
    return text;
}

/* One record of each kind, as a person would meet them. */
static void make_sample(void)
{
    static const struct wb_attrs attrs = {.mode = 0100644, .uid = 1000, .gid = 100, .nlink = 1, .size = 6,
                                          .atime = 1500000000, .mtime = 2000000000, .ctime = -1};
    struct wb_record record = {.type = WB_REC_PLACE, .op = WB_OP_MKDIR, .when = INT64_C(1795179787500000001),
                               .actor = 3};

    record.place = (struct wb_rec_place){.self = {5, 6}, .parent = {2, 3}, .name = "a \"b\"\n\xff\xc3\xa9",
                                         .name_length = 9};
    append(&record, NULL, 0);

    record = (struct wb_record){.type = WB_REC_NAME, .op = WB_OP_RENAME, .when = INT64_C(1795179787600000000)};
    record.name = (struct wb_rec_name){.dir = {.mode = 040755, .nlink = 2}, .count = 2};
    record.name.slots[0] = (struct wb_slot){.name = "old", .name_length = 3, .present = 1,
                                            .unbind = WB_UNBIND_RENAMED, .object = {7, 8}, .attrs = attrs,
                                            .to_dir = {5, 6}, .to_name = "new", .to_length = 3};
    record.name.slots[1] = (struct wb_slot){.name = "new", .name_length = 3, .from_dir = {5, 6},
                                            .from_name = "old", .from_length = 3};
    append(&record, NULL, 0);

    record = (struct wb_record){.type = WB_REC_DATA, .op = WB_OP_WRITE, .flags = WB_RECORD_MORE,
                                .when = INT64_C(1795179787700000000)};
    record.data = (struct wb_rec_data){
        .attrs = attrs, .offset = 0, .length = 8192, .size_after = 8192, .count = 3,
        .extents = {{.offset = 0, .length = 6, .kind = WB_EXTENT_INLINE},
                    {.offset = 4096, .length = 10, .kind = WB_EXTENT_ZERO},
                    {.offset = 8192, .length = 4096, .source = 4096, .kind = WB_EXTENT_IMAGE, .check = 0xabc}}};
    append(&record, "hello\n", 6);

    record = (struct wb_record){.type = WB_REC_GAP, .when = INT64_C(1795179787800000000)};
    record.gap = (struct wb_rec_gap){.since = INT64_C(1795179787000000000), .reason = WB_GAP_ERASED};
    append(&record, NULL, 0);
}

#define ATTRS_TEXT(mode, uid, gid, nlink, size, atime, mtime, ctime)                                      \
    "{mode=" mode " uid=" uid " gid=" gid " nlink=" nlink " size=" size " rdev=0 atime=" atime            \
    " mtime=" mtime " ctime=" ctime "}"
#define FILE_TEXT ATTRS_TEXT("100644", "1000", "100", "1", "6", "1.500000000", "2.000000000", "-0.000000001")
#define DIR_TEXT ATTRS_TEXT("040755", "0", "0", "2", "0", "0.000000000", "0.000000000", "0.000000000")

START_TEST(text_is_one_stable_line_a_record)
{
    struct wb_dump_count count;
    g_autofree char *text = NULL;

    make_sample();
    text = dump(WB_DUMP_VERIFY, 0, &count);
    ck_assert_uint_eq(count.records, 4);
    ck_assert_uint_eq(count.damaged, 0);
    ck_assert_str_eq(
        text,
        "0        1795179787.500000001 2026-11-20T14:03:07.500000001+01:00 mkdir PLACE actor=3 "
        "self=0000000000000005-0000000000000006 parent=0000000000000002-0000000000000003 "
        "name=\"a \\\"b\\\"\\x0a\\xff\xc3\xa9\"\n"

        "112      1795179787.600000000 2026-11-20T14:03:07.600000000+01:00 rename NAME actor=0 "
        "dir=" DIR_TEXT " slots=[{name=\"old\" present object=0000000000000007-0000000000000008 "
        "attrs=" FILE_TEXT " moved to_dir=0000000000000005-0000000000000006 to_name=\"new\"} "
        "{name=\"new\" absent from_dir=0000000000000005-0000000000000006 from_name=\"old\"}]\n"

        "472      1795179787.700000000 2026-11-20T14:03:07.700000000+01:00 write DATA actor=0 more=true "
        "offset=0 length=8192 size_after=8192 attrs=" FILE_TEXT " extents=[{inline offset=0 length=6 "
        "source=0} {zero offset=4096 length=10} {image offset=8192 length=4096 source=4096 "
        "check=0000000000000abc}] payload=6\n"

        "744      1795179787.800000000 2026-11-20T14:03:07.800000000+01:00 none GAP actor=0 "
        "since=1795179787.000000000 erased\n");
}
END_TEST

START_TEST(json_says_the_same)
{
    struct wb_dump_count count;
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    make_sample();
    text = dump(WB_DUMP_JSON, 0, &count);
    lines = g_strsplit(text, "\n", -1);
    ck_assert_str_eq(lines[0],
                     "{\"schema\":1,\"at\":0,\"total\":112,\"time\":\"2026-11-20T14:03:07.500000001+01:00\","
                     "\"epoch\":\"1795179787.500000001\",\"op\":\"mkdir\",\"type\":\"PLACE\","
                     "\"actor\":3,\"self\":\"0000000000000005-0000000000000006\","
                     "\"parent\":\"0000000000000002-0000000000000003\","
                     "\"name\":\"a \\\"b\\\"\\u000a\\ufffd\xc3\xa9\",\"name_bytes\":\"YSAiYiIK/8Op\"}");
    ck_assert_str_eq(lines[3],
                     "{\"schema\":1,\"at\":744,\"total\":72,\"time\":\"2026-11-20T14:03:07.800000000+01:00\","
                     "\"epoch\":\"1795179787.800000000\",\"op\":\"none\",\"type\":\"GAP\","
                     "\"actor\":0,\"since\":{\"time\":\"2026-11-20T14:03:07.000000000+01:00\","
                     "\"epoch\":\"1795179787.000000000\"},"
                     "\"reason\":\"erased\"}");
}
END_TEST

START_TEST(every_line_of_json_parses_whatever_the_names)
{
    static struct random_record made;
    static uint8_t payload[WB_PAYLOAD_MAX];
    struct wb_dump_count count;
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;
    gint64 at = 0;
    int n = 0;

    random_record_seed(11);
    for (int i = 0; i < 200; i++) {
        random_record_make(&made, (enum wb_record_type)(1 + i % WB_REC_LAST));
        made.record.when = INT64_MAX / 2 + i; /* a log never goes back */
        append(&made.record, payload, made.record.payload_length);
    }
    text = dump(WB_DUMP_JSON | WB_DUMP_VERIFY, 0, &count);
    ck_assert_uint_eq(count.records, 200);
    ck_assert_uint_eq(count.damaged, 0);
    lines = g_strsplit(text, "\n", -1);
    for (; lines[n] && *lines[n]; n++) {
        g_autoptr(JsonParser) parser = json_parser_new();
        g_autoptr(GError) error = NULL;
        JsonObject *object;

        ck_assert_msg(json_parser_load_from_data(parser, lines[n], -1, &error), "%s", lines[n]);
        object = json_node_get_object(json_parser_get_root(parser));
        ck_assert_int_eq(json_object_get_int_member(object, "at"), at);
        at += json_object_get_int_member(object, "total");
    }
    ck_assert_int_eq(n, 200);
}
END_TEST

static void flip(uint64_t offset)
{
    _cleanup_close_ int fd = openat(dir_fd, "log", O_RDWR | O_CLOEXEC);
    uint8_t byte;

    ck_assert_int_eq(wb_pread_exact(fd, &byte, 1, offset), 0);
    byte ^= 0x10;
    ck_assert_int_eq(wb_pwrite_full(fd, &byte, 1, offset), 0);
}

START_TEST(damage_is_named_by_its_place)
{
    struct wb_dump_count count;
    char *text;

    make_sample();
    flip(112 + 60);
    text = dump(0, 0, &count);
    ck_assert_uint_eq(count.records, 3);
    ck_assert_uint_eq(count.damaged, 1);
    ck_assert_ptr_nonnull(strstr(text, "\nDAMAGED 112..472\n472 "));
    free(text);
    text = dump(WB_DUMP_JSON, 0, &count);
    ck_assert_ptr_nonnull(strstr(text, "\n{\"schema\":1,\"damaged\":true,\"from\":112,\"to\":472}\n{\"schema\":1,\"at\":472,"));
    free(text);
}
END_TEST

START_TEST(damaged_payloads_are_seen_if_requested)
{
    struct wb_dump_count count;
    char *text;

    make_sample();
    flip(472 + 48 + 208 + 2);
    free(dump(0, 0, &count));
    ck_assert_uint_eq(count.damaged, 0);
    text = dump(WB_DUMP_VERIFY, 0, &count);
    ck_assert_uint_eq(count.records, 4);
    ck_assert_uint_eq(count.damaged, 1);
    ck_assert_ptr_nonnull(strstr(text, " payload=6 PAYLOAD DAMAGED\n"));
    free(text);
    text = dump(WB_DUMP_VERIFY | WB_DUMP_JSON, 0, &count);
    ck_assert_ptr_nonnull(strstr(text, "\"payload\":6,\"payload_damaged\":true}\n"));
    free(text);
}
END_TEST

START_TEST(an_unfinished_tail_is_not_damage)
{
    struct wb_dump_count count;
    g_autofree char *text = NULL;

    make_sample();
    ck_assert_int_eq(truncate(log_path, 744 + 50), 0);
    text = dump(0, 0, &count);
    ck_assert_uint_eq(count.records, 3);
    ck_assert_uint_eq(count.damaged, 0);
    ck_assert(g_str_has_suffix(text, "\nUNFINISHED 744..794\n"));
}
END_TEST

START_TEST(files_that_are_not_logs_are_refused)
{
    _cleanup_close_ int fd = openat(dir_fd, "log", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct wb_dump_count count;
    struct wb_error why;

    /* Nothing has happened yet: an empty log. */
    free(dump(0, 0, &count));
    ck_assert_uint_eq(count.records, 0);
    ck_assert_int_eq(wb_pwrite_full(fd, "Dear diary,\ntoday nothing happened at all. Nothing.\n", 52, 0), 0);
    free(dump(0, -EBADMSG, &count));
    ck_assert_int_eq(wb_dump_log(dir_path, stdout, 0, &count, &why), -EISDIR);
    ck_assert_int_eq(wb_dump_log("/dev/null", stdout, 0, NULL, NULL), -EINVAL);
    ck_assert_int_eq(unlinkat(dir_fd, "log", 0), 0);
    free(dump(0, -ENOENT, &count));
    ck_assert_int_eq(mkfifoat(dir_fd, "log", 0600), 0);
    free(dump(0, -EINVAL, &count));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dump");
    TCase *tcase = tcase_create("dump");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    tcase_add_test(tcase, text_is_one_stable_line_a_record);
    tcase_add_test(tcase, json_says_the_same);
    tcase_add_test(tcase, every_line_of_json_parses_whatever_the_names);
    tcase_add_test(tcase, damage_is_named_by_its_place);
    tcase_add_test(tcase, damaged_payloads_are_seen_if_requested);
    tcase_add_test(tcase, an_unfinished_tail_is_not_damage);
    tcase_add_test(tcase, files_that_are_not_logs_are_refused);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
