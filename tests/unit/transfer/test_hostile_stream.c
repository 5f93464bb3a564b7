/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams of an attacker: refused before anything is changed, and later valid ones are received. */
#include "base/checksum.h"
#include "capture_ops.h"
#include "store/identity/identities.h"
#include "transfer/wire/frames.h"
#include "wayback/copy.h"
#include <ftw.h>
#include <sys/mman.h>

static struct tree source;
static char copy[300];
static struct wb_object root, dir, sub, file;

struct made {
    struct wb_frames frames;
    struct wb_stream_hello hello;
};

/* ---- a copy, and its contents ------------------------------------------------------------------------ */

static struct wb_object object_at(const char *path)
{
    g_autofree char *whole = g_build_filename(source.path, path, NULL);
    struct wb_object object;

    ck_assert_int_eq(wb_object_stat(NULL, AT_FDCWD, whole, &object, NULL, NULL), 0);
    return object;
}

static int receive_from(int fd, struct wb_error *why)
{
    struct wb_copy_result result;

    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    return wb_copy_receive(copy, fd, NULL, &result, why);
}

static int64_t has(void)
{
    struct wb_copy_result result;
    struct wb_error why = {""};
    int r = wb_copy_status(copy, &result, &why);

    ck_assert_msg(r == 0, "%s", why.text);
    return result.until;
}

/* Everything since then, in a file. */
static int send_since(int64_t since)
{
    struct wb_copy_point from = {.since = since};
    int fd = memfd_create("stream", MFD_CLOEXEC);
    struct wb_copy_result result;
    struct wb_error why = {""};

    ck_assert_int_eq(wb_copy_send(source.path, NULL, &from, 0, fd, NULL, &result, &why), 0);
    return fd;
}

static void follow(void)
{
    struct wb_error why = {""};
    int fd = send_since(has()), r = receive_from(fd, &why);

    ck_assert_msg(r == 0, "%s", why.text);
    close(fd);
}

static void setup(void)
{
    tree_open(&source);
    g_snprintf(copy, sizeof(copy), "%s-copy", source.path);
    op_birth(&source, "dir", WB_OP_MKDIR);
    op_birth(&source, "dir/sub", WB_OP_MKDIR);
    op_make(&source, "dir/sub/inner", "text");
    op_make(&source, "file", "some text");
    follow();
    root = source.store->header.root;
    dir = object_at("dir");
    sub = object_at("dir/sub");
    file = object_at("file");
}

static void teardown(void)
{
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", copy);

    tree_close(&source);
    ck_assert_int_eq(system(command), 0);
}

static uint64_t sum;

static int add_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    uint64_t parts[] = {sum, wb_checksum(path, strlen(path)), st->st_mode, st->st_nlink, 0};
    g_autofree char *text = NULL;
    gsize length = 0;

    if (!strstr(path, "/receiving") && type == FTW_F && g_file_get_contents(path, &text, &length, NULL))
        parts[4] = wb_checksum(text, length);
    if (!strstr(path, "/receiving"))
        sum = wb_checksum(parts, sizeof(parts));
    return 0;
}

static uint64_t sum_of_copy(void)
{
    sum = 0;
    nftw(copy, add_one, 16, FTW_PHYS);
    return sum;
}

/* ---- parts of a stream -------------------------------------------------------------------------------- */

static void frame(struct made *made, enum wb_frame_type type, const void *head, size_t length, const void *data,
                  size_t data_length)
{
    ck_assert_int_eq(wb_frames_write(&made->frames, type, head, length, data, data_length), 0);
}

static void say_hello(struct made *made)
{
    uint8_t head[WB_HELLO_SIZE];

    wb_stream_encode_hello(&made->hello, head);
    frame(made, WB_FRAME_HELLO, head, sizeof(head), NULL, 0);
}

/* Part of a listing: none or one entry. */
static void say_entry_of(struct made *made, struct wb_object in, const char *name, struct wb_object object,
                         uint32_t mode, bool last)
{
    struct wb_stream_entry entry = {.object = object, .mode = mode, .name = name};
    struct wb_stream_list list = {.object = in, .count = name != NULL, .last = last};
    uint8_t head[WB_STREAM_LIST_SIZE], data[WB_STREAM_ENTRY_MAX];
    size_t length = 0;

    if (name) {
        entry.length = (uint8_t)strlen(name);
        length = wb_stream_encode_entry(&entry, data);
    }
    wb_stream_encode_list(&list, head);
    frame(made, WB_FRAME_LISTING, head, sizeof(head), data, length);
}

/* An entry that is not a directory here is `file`. */
static void say_entry(struct made *made, struct wb_object in, const char *name, struct wb_object object, bool last)
{
    say_entry_of(made, in, name, object, wb_object_equal(object, file) ? S_IFREG : S_IFDIR, last);
}

static void say_object(struct made *made, struct wb_object object, uint32_t mode, uint64_t size)
{
    struct wb_stream_object body = {.object = object, .attrs = {.mode = mode, .size = size, .nlink = 1},
                                    .flags = WB_STREAM_WHOLE};
    uint8_t head[WB_STREAM_OBJECT_SIZE];

    wb_stream_encode_object(&body, head);
    frame(made, WB_FRAME_OBJECT, head, sizeof(head), NULL, 0);
}

/* ---- refused streams ---------------------------------------------------------------------------------- */

static void of_another_root(struct made *made)
{
    made->hello.root = dir;
    say_hello(made);
}

static void name_that_leads_up(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "..", file, true);
}

static void name_with_a_slash(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "dir/../../x", file, true);
}

static void name_of_the_store(struct made *made)
{
    say_hello(made);
    say_entry(made, root, WB_STORE_NAME, dir, true);
}

static void within_each_other(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "file", file, true);
    say_entry(made, dir, "sub", sub, true);
    say_entry(made, sub, "dir", dir, true);
}

/* That many directories, each in the one before, and the existing entries in the last of them. */
static void say_chain(struct made *made, unsigned count, const char *name, struct wb_object last, bool is_last)
{
    struct wb_object above = root, next = {1 << 20, 1};

    say_hello(made);
    for (unsigned i = 0; i < count; i++, next.ino++)
        say_object(made, next, S_IFDIR | 0755, 0);
    if (!is_last)
        say_entry(made, root, "file", file, false);
    next.ino = 1 << 20;
    for (unsigned i = 0; i < count; i++, next.ino++) {
        say_entry(made, above, "d", next, true);
        above = next;
    }
    say_entry(made, above, name, last, true);
}

static void too_deep(struct made *made)
{
    say_chain(made, 4097, "file", file, true);
}

/* Entries below that one are not sent. */
static void too_deep_with_what_is_in_it(struct made *made)
{
    say_chain(made, 4096, "dir", dir, false);
}

static void taken_from_where_it_stays(struct made *made)
{
    struct wb_object fresh = {1 << 20, 1};

    say_hello(made);
    say_object(made, fresh, S_IFDIR | 0755, 0);
    say_entry(made, root, "dir", dir, false);
    say_entry(made, root, "file", file, false);
    say_entry(made, root, "fresh", fresh, true);
    say_entry(made, fresh, "sub", sub, true);
}

static void below_what_is_nowhere(struct made *made)
{
    struct wb_object fresh = {1 << 20, 1};

    say_hello(made);
    say_object(made, fresh, S_IFDIR | 0755, 0);
    say_entry(made, fresh, "file", file, true);
}

static void a_directory_twice(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "dir", dir, true);
    say_entry(made, root, "file", file, true);
}

static void between_its_parts(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "dir", dir, false);
    say_entry(made, sub, "file", file, true);
    say_entry(made, root, "other", file, true);
}

static void a_listing_without_end(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "dir", dir, false);
}

/* As two objects, and as one. */
static void two_of_one_name(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "dir", dir, false);
    say_entry(made, root, "x", file, false);
    say_entry(made, root, "x", sub, true);
    say_entry(made, dir, NULL, WB_OBJECT_NONE, true);
}

static void one_name_twice(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "dir", dir, false);
    say_entry(made, root, "x", file, false);
    say_entry(made, root, "x", file, true);
}

static void listed_as_another_kind(struct made *made)
{
    say_hello(made);
    say_entry(made, root, "file", file, false);
    say_entry_of(made, root, "dir", dir, S_IFREG, true);
}

static void of_another_kind(struct made *made)
{
    say_hello(made);
    say_object(made, file, S_IFIFO | 0600, 0);
}

static void told_as_two_kinds(struct made *made)
{
    say_hello(made);
    say_object(made, (struct wb_object){1 << 20, 1}, S_IFREG | 0600, 0);
    say_object(made, (struct wb_object){1 << 20, 1}, S_IFCHR | 0600, 0);
}

static void larger_than_any(struct made *made)
{
    say_hello(made);
    say_object(made, file, S_IFREG | 0600, INT64_MAX);
}

static void image_beyond_any(struct made *made)
{
    struct wb_stream_bytes bytes = {.object = file, .offset = INT64_MAX - 1};
    uint8_t head[WB_STREAM_BYTES_SIZE];

    say_hello(made);
    wb_stream_encode_bytes(&bytes, head);
    frame(made, WB_FRAME_IMAGE, head, sizeof(head), "x", 1);
}

static void say_hole(struct made *made, enum wb_frame_type type, uint64_t offset, uint64_t length)
{
    struct wb_stream_hole hole = {.object = file, .offset = offset, .length = length};
    uint8_t data[WB_STREAM_HOLE_SIZE];

    wb_stream_encode_hole(&hole, data);
    frame(made, type, data, sizeof(data), NULL, 0);
}

static void hole_beyond_any(struct made *made)
{
    say_hello(made);
    say_hole(made, WB_FRAME_IMAGE_HOLE, 1, INT64_MAX - 1);
}

static void hole_beyond_the_file(struct made *made)
{
    say_hello(made);
    say_object(made, file, S_IFREG | 0600, 10);
    say_hole(made, WB_FRAME_HOLE, 9, 2);
}

static void hole_of_another_file(struct made *made)
{
    say_hello(made);
    say_object(made, root, S_IFDIR | 0700, 0);
    say_hole(made, WB_FRAME_HOLE, 0, 1);
}

static void hole_in_a_stream_without_holes(struct made *made)
{
    made->hello.version = WB_STREAM_VERSION_HOLES - 1;
    say_hello(made);
    say_object(made, file, S_IFREG | 0600, 10);
    say_hole(made, WB_FRAME_HOLE, 0, 10);
}

/* An object of that type with the first `length` bytes of the flags of an inode. */
static void say_flags(struct made *made, mode_t type, size_t length)
{
    struct wb_stream_xattr xattr = {.name_length = strlen(WB_FLAGS_NAME), .value_length = (uint32_t)length};
    struct wb_stream_list list = {.object = file, .count = 1, .last = true};
    struct wb_flags flags = {.flags = 0x40};
    GByteArray *body = g_byte_array_new();
    uint8_t head[WB_STREAM_LIST_SIZE], item[WB_STREAM_XATTR_HEAD], value[WB_FLAGS_SIZE];

    wb_stream_encode_list(&list, head);
    wb_stream_encode_xattr(&xattr, item);
    wb_flags_encode(&flags, value);
    g_byte_array_append(body, item, sizeof(item));
    g_byte_array_append(body, (const uint8_t *)WB_FLAGS_NAME, strlen(WB_FLAGS_NAME));
    g_byte_array_append(body, value, (guint)length);
    say_hello(made);
    say_object(made, file, type | 0600, 0);
    frame(made, WB_FRAME_XATTRS, head, sizeof(head), body->data, body->len);
    g_byte_array_unref(body);
}

static void flags_in_a_stream_without_flags(struct made *made)
{
    made->hello.version = WB_STREAM_VERSION_FLAGS - 1;
    say_flags(made, S_IFREG, WB_FLAGS_SIZE);
}

static void flags_that_are_cut_off(struct made *made)
{
    say_flags(made, S_IFREG, WB_FLAGS_SIZE - 1);
}

/* A file of another kind would be refused whatever follows: it is another object. */
static void flags_of_a_fifo(struct made *made)
{
    struct wb_object was = file;

    file.ino += 1000;
    say_flags(made, S_IFIFO, WB_FLAGS_SIZE);
    file = was;
}

/* The records of the true stream, the last ones first; or as of `actors`, if that has no place for them. */
static void say_records(struct made *made, bool of_actors)
{
    GPtrArray *bodies = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    struct wb_stream_body body = {0};
    struct wb_frames frames;
    int fd;

    op_write(&source, "file", 0, "one");
    op_write(&source, "file", 0, "two");
    fd = send_since(made->hello.since);
    say_hello(made);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    ck_assert_int_eq(wb_frames_init(&frames, fd, NULL), 0);
    while (body.type != WB_FRAME_END) {
        size_t length;

        ck_assert_int_eq(wb_frames_read(&frames, &body, NULL, &length), 0);
        if (body.type == WB_FRAME_RECORD && body.record.log < WB_STREAM_ACTORS) {
            if (of_actors)
                body.record = (struct wb_stream_record){.log = WB_STREAM_ACTORS, .offset = 4096};
            wb_stream_encode_record(&body.record, frames.buffer);
            g_ptr_array_add(bodies, g_bytes_new(frames.buffer, length));
        }
    }
    ck_assert_uint_gt(bodies->len, 0);
    for (guint i = bodies->len; i-- > 0;)
        frame(made, WB_FRAME_RECORD, g_bytes_get_data(bodies->pdata[i], NULL), g_bytes_get_size(bodies->pdata[i]), NULL,
              0);
    wb_frames_deinit(&frames);
    close(fd);
    g_ptr_array_unref(bodies);
}

static void records_out_of_order(struct made *made)
{
    say_records(made, false);
}

static void actors_that_are_missing(struct made *made)
{
    say_records(made, true);
}

static const struct {
    void (*make)(struct made *made);
    bool by_size; /* refused if the file system has no such files */
} cases[] = {
    {of_another_root, false},     {name_that_leads_up, false},      {name_with_a_slash, false},
    {name_of_the_store, false},   {within_each_other, false},       {too_deep, false},
    {too_deep_with_what_is_in_it, false},
    {taken_from_where_it_stays, false}, {below_what_is_nowhere, false}, {a_directory_twice, false},
    {between_its_parts, false},   {a_listing_without_end, false},   {of_another_kind, false},
    {told_as_two_kinds, false},   {larger_than_any, true},          {image_beyond_any, true},
    {records_out_of_order, false}, {actors_that_are_missing, false}, {listed_as_another_kind, false},
    {two_of_one_name, false},     {one_name_twice, false},         {hole_beyond_any, true},
    {hole_beyond_the_file, false}, {hole_of_another_file, false},   {hole_in_a_stream_without_holes, false},
    {flags_in_a_stream_without_flags, false}, {flags_that_are_cut_off, false}, {flags_of_a_fifo, false},
};

static bool has_any_size(void)
{
    int fd = open(copy, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    bool any = fd >= 0 && ftruncate(fd, INT64_MAX) == 0;

    close(fd);
    return any;
}

START_TEST(harmful_streams_are_refused)
{
    struct made made = {.hello = {.version = WB_STREAM_VERSION, .format = WB_FORMAT_VERSION, .root = root,
                                  .created = 1, .since = has(), .until = INT64_MAX / 2}};
    int fd = memfd_create("stream", MFD_CLOEXEC), r;
    struct wb_error why = {""};
    uint64_t was = sum_of_copy();

    if (cases[_i].by_size && has_any_size())
        return;
    memcpy(made.hello.uuid, source.store->header.uuid, sizeof(made.hello.uuid));
    ck_assert_int_eq(wb_frames_init(&made.frames, fd, NULL), 0);
    cases[_i].make(&made);
    frame(&made, WB_FRAME_END, NULL, 0, NULL, 0);
    ck_assert_int_eq(wb_frames_flush(&made.frames), 0);
    wb_frames_deinit(&made.frames);
    r = receive_from(fd, &why);
    ck_assert_msg(r == -EBADMSG || r == -EXDEV || r == -EFBIG || r == -EINVAL, "case %d: %d: %s", _i, r, why.text);
    ck_assert_str_ne(why.text, "");
    ck_assert_int_eq(has(), made.hello.since);
    ck_assert_uint_eq(sum_of_copy(), was);
    close(fd);
    op_write(&source, "file", 0, "true");
    follow();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile_stream");
    TCase *tests = tcase_create("hostile_stream");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, harmful_streams_are_refused, 0, G_N_ELEMENTS(cases));
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
