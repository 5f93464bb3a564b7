/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compaction: the bytes of a log are the same, wherever they are, and whatever happens while they are packed. */
#include "history_tree.h"
#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/rewrite/compact.h"
#include "maintain/erase/erase.h"
#include "maintain/rewrite/tried.h"
#include "random_record.h"
#include "wayback/when.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LINES 1200

static struct wb_object object;
static GPtrArray *versions; /* content of the file ... */
static GArray *moments;     /* ... at these moments   */

/* Fewer than `limit`, and at most `most`. */
static uint64_t up_to(uint64_t most, uint64_t limit)
{
    uint64_t n = random_below(limit);

    return MIN(n, most);
}

static char *some_text(void)
{
    GString *text = g_string_new(NULL);

    for (int i = 0; i < LINES; i++)
        g_string_append_printf(text, "line %d says %" G_GUINT64_FORMAT "\n", i, random_below(100000));
    return g_string_free(text, FALSE);
}

/* The next version: a line is longer or shorter, and everything behind it is written again. */
static void shift(unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        const char *old = g_ptr_array_index(versions, versions->len - 1);
        size_t at = random_below(strlen(old));
        g_autofree char *line =
            g_strdup_printf("%.*s%" G_GUINT64_FORMAT, (int)random_below(9), "changed to", random_u64());
        char *text = g_strdup_printf("%.*s%s%s", (int)at, old, line, old + at + up_to(strlen(old + at), 40));
        int64_t when;

        op_write(&tree, "f", at, text + at);
        op_truncate(&tree, "f", strlen(text));
        when = now();
        g_ptr_array_add(versions, text);
        g_array_append_val(moments, when);
    }
}

static void setup_file(void)
{
    int64_t when;
    char *text;

    setup();
    random_record_seed(1);
    versions = g_ptr_array_new_with_free_func(g_free);
    moments = g_array_new(FALSE, FALSE, sizeof(int64_t));
    text = some_text();
    op_make(&tree, "f", text);
    object = tree_object(&tree, "f");
    when = now();
    g_ptr_array_add(versions, text);
    g_array_append_val(moments, when);
}

static void teardown_file(void)
{
    g_ptr_array_unref(versions);
    g_array_unref(moments);
    teardown();
}

static void check_versions(void)
{
    for (guint i = 0; i < versions->len; i += 1 + i / 7)
        expect_content("f", g_array_index(moments, int64_t, i), g_ptr_array_index(versions, i));
}

/* ---- the log's bytes --------------------------------------------------------------------------- */

static int open_undo(int flags)
{
    int fd = wb_store_open_file(tree.store, object, WB_FILE_UNDO, flags | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static GByteArray *log_bytes(void)
{
    GByteArray *all = g_byte_array_new();
    struct wb_log_bytes bytes;
    uint64_t size;

    ck_assert_int_eq(wb_log_bytes_open(&bytes, open_undo(O_RDONLY)), 0);
    ck_assert_int_eq(wb_log_bytes_size(&bytes, &size), 0);
    g_byte_array_set_size(all, (guint)size);
    ck_assert_int_eq(wb_log_bytes_exact(&bytes, all->data, size, 0), 0);
    /* The same in pieces that begin and end anywhere. */
    for (int i = 0; i < 200 && size > 0; i++) {
        uint64_t at = random_below(size), length = up_to(size - at, 100000);
        g_autofree uint8_t *piece = g_malloc(length + 1);

        ck_assert_int_eq(wb_log_bytes_exact(&bytes, piece, length, at), 0);
        ck_assert_int_eq(memcmp(piece, all->data + at, length), 0);
    }
    wb_log_bytes_close(&bytes);
    close(bytes.fd);
    return all;
}

static bool begins_with(const GByteArray *all, const GByteArray *beginning)
{
    return all->len >= beginning->len && memcmp(all->data, beginning->data, beginning->len) == 0;
}

static uint64_t file_size(void)
{
    struct stat st;
    int fd = open_undo(O_RDONLY);

    ck_assert_int_eq(fstat(fd, &st), 0);
    close(fd);
    return (uint64_t)st.st_size;
}

static int compact(unsigned flags)
{
    struct wb_compact how = {.flags = flags, .before = WB_WHEN_PRESENT};

    return wb_compact_log(tree.store, &how, object, WB_FILE_UNDO);
}

static void compact_well(unsigned flags)
{
    g_autoptr(GByteArray) before = log_bytes();
    g_autoptr(GByteArray) after = NULL;

    ck_assert_int_eq(compact(flags), 0);
    after = log_bytes();
    ck_assert(begins_with(after, before));
}

/* Of a compaction that was not finished. */
static bool leftovers(void)
{
    _cleanup_closedir_ DIR *stream = NULL;
    struct dirent *entry;
    bool found = false;
    char path[64];

    g_snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", (unsigned)(object.ino & 0xff));
    stream = fdopendir(openat(tree.store->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ck_assert_ptr_nonnull(stream);
    while ((entry = readdir(stream)))
        found |= g_str_has_suffix(entry->d_name, ".new");
    return found;
}

static void reopen(void)
{
    wb_history_free(history);
    tree_release(&tree);
    wb_store_free(tree.store);
    tree_open_store(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

/* ---- tests ------------------------------------------------------------------------------------- */

START_TEST(nothing_changes_but_the_size)
{
    uint64_t size;

    for (int i = 0; i < 4; i++) {
        shift(60);
        size = file_size();
        compact_well(0);
        ck_assert_uint_lt(file_size(), size - size / 3);
        check_versions();
        shift(3); /* appended to a packed log */
        check_versions();
        if (i % 2)
            reopen();
        check_versions();
    }
    compact_well(WB_COMPACT_UNDO);
    size = file_size();
    check_versions();
    {
        g_autoptr(GByteArray) all = log_bytes();

        ck_assert_uint_eq(all->len, size);
    }
    shift(2);
    compact_well(0);
    check_versions();
    ck_assert(!leftovers());
}
END_TEST

static void write_noise(int count, size_t length)
{
    g_autofree char *noise = g_malloc0(length + 1);

    for (int i = 0; i < count; i++) {
        for (size_t j = 0; j < length; j++)
            noise[j] = (char)(1 + random_below(255));
        op_write(&tree, "f", random_below(10000), noise);
    }
}

START_TEST(a_log_that_does_not_get_smaller_is_kept)
{
    struct stat before, after;
    int fd;

    write_noise(300, 599);
    compact(WB_COMPACT_DRY);
    fd = open_undo(O_RDONLY);
    ck_assert_int_eq(fstat(fd, &before), 0);
    ck_assert_int_eq(compact(WB_COMPACT_DRY), 0);
    ck_assert_int_eq(fstat(fd, &after), 0);
    ck_assert_uint_eq(after.st_nlink, 1);
    ck_assert_uint_eq(before.st_size, after.st_size);
    close(fd);
    compact_well(0);
    ck_assert(!leftovers());
}
END_TEST

/* Older than a moment only: later records are not packed. */
START_TEST(before_a_moment)
{
    struct wb_compact how = {0};
    struct wb_log_bytes bytes;
    struct wb_log_reader reader;
    struct wb_record record;

    shift(40);
    how.before = now();
    shift(40);
    ck_assert_int_eq(wb_compact_log(tree.store, &how, object, WB_FILE_UNDO), 0);
    ck_assert_uint_eq(how.changed, 1);
    ck_assert_uint_eq(how.new_size, file_size());
    ck_assert_int_eq(wb_log_bytes_open(&bytes, open_undo(O_RDONLY)), 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, bytes.fd), 0);
    wb_log_reader_seek(&reader, wb_log_bytes_unpacked(&bytes));
    ck_assert_int_eq(wb_log_reader_next(&reader, &record), 0);
    ck_assert_int_gt(record.when, how.before);
    wb_log_reader_seek(&reader, wb_log_bytes_unpacked(&bytes));
    ck_assert_int_eq(wb_log_reader_prev(&reader, &record), 0);
    ck_assert_int_lt(record.when, how.before);
    wb_log_reader_deinit(&reader);
    wb_log_bytes_close(&bytes);
    close(bytes.fd);
    check_versions();
}
END_TEST

/* A reader with the old file open reads it to its end, and finds the later records in the new one. */
START_TEST(a_view_is_exact)
{
    struct wb_file_view *view;
    const char *wanted = g_ptr_array_index(versions, 0);
    g_autofree char *text = g_malloc0(strlen(wanted) + 1);
    struct wb_revision *revision;

    shift(40);
    revision = find("f", g_array_index(moments, int64_t, 0), NULL);
    ck_assert_int_eq(wb_file_view_open(history, revision, &view), 0);
    for (int i = 0; i < 6; i++) {
        memset(text, 0, strlen(wanted));
        ck_assert_int_eq(wb_file_view_pread(view, text, strlen(wanted), 0), (ssize_t)strlen(wanted));
        ck_assert_str_eq(text, wanted);
        compact_well(i % 3 == 2 ? WB_COMPACT_UNDO : 0);
        shift(20);
    }
    wb_file_view_free(view);
    wb_revision_unref(revision);
}
END_TEST

/* ---- damage ------------------------------------------------------------------------------------ */

/* Walks both ways: whole records, or a report of damage; never an early end. 1: damage was met. */
static int walk(uint64_t records)
{
    struct wb_log_reader reader;
    struct wb_record record;
    uint64_t count = 0;
    bool damaged = false;
    int r;

    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 || r == WB_DAMAGED) {
        damaged |= r == WB_DAMAGED;
        count += r == 0;
    }
    ck_assert_int_eq(r, WB_END);
    ck_assert(damaged || count == records);
    wb_log_reader_seek(&reader, 0);
    count = 0;
    while ((r = wb_log_reader_next(&reader, &record)) == 0 || r == WB_DAMAGED) {
        damaged |= r == WB_DAMAGED;
        count += r == 0;
    }
    ck_assert_int_eq(r, WB_END);
    ck_assert(damaged || count == records);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
    return damaged;
}

static uint64_t count_records(void)
{
    struct wb_log_reader reader;
    struct wb_record record;
    uint64_t count = 0;

    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    while (wb_log_reader_prev(&reader, &record) == 0)
        count++;
    close(reader.fd);
    wb_log_reader_deinit(&reader);
    return count;
}

/* Any byte of the packed part altered: each version is as it was, or refused; nothing is cut away. */
START_TEST(damage_is_reported)
{
    uint64_t packed, size, records;
    struct wb_log_bytes bytes;
    unsigned damaged = 0;

    shift(50);
    compact_well(0);
    if (_i % 2)
        shift(2);
    records = count_records();
    size = file_size();
    ck_assert_int_eq(wb_log_bytes_open(&bytes, open_undo(O_RDWR)), 0);
    packed = wb_log_bytes_packed(&bytes);
    wb_log_bytes_close(&bytes);
    for (int i = 0; i < 60; i++) {
        uint64_t at = i < 20 ? random_below(200) : random_below(packed);
        uint8_t byte, other;

        ck_assert_int_eq(wb_pread_exact(bytes.fd, &byte, 1, at), 0);
        other = byte ^ (uint8_t)(1 + random_below(255));
        ck_assert_int_eq(wb_pwrite_full(bytes.fd, &other, 1, at), 0);
        wb_log_chunks_forget();
        damaged += (unsigned)walk(records);
        for (guint v = 0; v < versions->len; v += 17) {
            struct wb_revision *revision = find("f", g_array_index(moments, int64_t, v), NULL);
            g_autofree char *text = NULL;
            ssize_t n;

            ck_assert(revision != NULL);
            text = content_of(revision, &n);
            if (n >= 0)
                ck_assert_str_eq(text, g_ptr_array_index(versions, v));
            wb_revision_unref(revision);
        }
        /* Opened for writing, and closed again. */
        if (i % 10 == 0) {
            reopen();
            {
                struct wb_log *log;

                ck_assert_int_eq(wb_store_get_log(tree.store, object, WB_FILE_UNDO, false, &log), 0);
                wb_store_put_log(tree.store, log);
            }
            ck_assert_uint_eq(file_size(), size);
        }
        ck_assert_int_eq(wb_pwrite_full(bytes.fd, &byte, 1, at), 0);
        wb_log_chunks_forget();
    }
    close(bytes.fd);
    ck_assert_uint_gt(damaged, 30);
    reopen();
    check_versions();
}
END_TEST

/* A tail that a crash cut off is cut away behind a pack as anywhere. */
START_TEST(a_torn_tail)
{
    g_autoptr(GByteArray) whole = NULL, again = NULL;
    uint64_t size;
    int fd;

    shift(40);
    compact_well(0);
    shift(2);
    size = file_size();
    whole = log_bytes();
    fd = open_undo(O_WRONLY);
    /* The beginning of a record, as it would be there after a crash. */
    ck_assert_int_eq(wb_pwrite_full(fd, whole->data, 200, size), 0);
    close(fd);
    reopen();
    shift(1);
    again = log_bytes();
    ck_assert(begins_with(again, whole));
    check_versions();
}
END_TEST

/* ---- changes meanwhile -------------------------------------------------------------------------- */

START_TEST(killed_in_the_middle)
{
    int status;
    pid_t child;

    shift(120);
    if (_i % 3 == 1)
        compact_well(0);
    shift(60);
    tree_release(&tree);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(compact(_i % 3 == 1 ? WB_COMPACT_UNDO : 0) < 0);
    g_usleep((gulong)_i * _i * 500);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    reopen();
    check_versions();
    {
        struct wb_compact how = {.before = WB_WHEN_PRESENT};

        ck_assert_int_eq(wb_compact_shard(tree.store, &how, (unsigned)(object.ino & 0xff), 0, WB_WHEN_PRESENT), 0);
    }
    ck_assert(!leftovers());
    check_versions();
}
END_TEST

/* No space: as it was, and nothing beside it. */
START_TEST(no_space)
{
    struct rlimit limit, old;
    g_autoptr(GByteArray) before = NULL, after = NULL;
    int r;

    shift(120);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t room = 0; room < 40000; room += 4001) {
        g_clear_pointer(&before, g_byte_array_unref);
        g_clear_pointer(&after, g_byte_array_unref);
        before = log_bytes();
        limit = old;
        limit.rlim_cur = room;
        setrlimit(RLIMIT_FSIZE, &limit);
        r = compact(0);
        setrlimit(RLIMIT_FSIZE, &old);
        ck_assert(room > 0 || r < 0);
        if (r == 0)
            break;
        after = log_bytes();
        ck_assert(begins_with(after, before));
        ck_assert(!leftovers());
        check_versions();
    }
    compact_well(0);
    check_versions();
}
END_TEST

static struct {
    pthread_t thread;
    bool begun;
    int result;
} asked;

static void *pack_as_asked(void *data)
{
    asked.result = compact(0);
    return NULL;
}

/* The first time: another thread asks for a packing, and waits for this one. */
static bool let_somebody_ask(void *data)
{
    if (asked.begun)
        return false;
    asked.begun = true;
    ck_assert_int_eq(pthread_create(&asked.thread, NULL, pack_as_asked, NULL), 0);
    for (int i = 0; i < 2000 && atomic_load(&tree.store->rewrite_awaited) == 0; i++)
        g_usleep(1000);
    return false;
}

START_TEST(the_background_stops_for_a_requested_packing)
{
    struct wb_compact idle = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .stop = let_somebody_ask};
    uint64_t before;

    shift(200);
    before = file_size();
    ck_assert_int_eq(wb_compact_log(tree.store, &idle, object, WB_FILE_UNDO), -ECANCELED);
    ck_assert(asked.begun);
    pthread_join(asked.thread, NULL);
    ck_assert_int_eq(asked.result, 0);
    ck_assert_uint_lt(file_size(), before);
    check_versions();
}
END_TEST

static unsigned asked_to_stop;

/* It is asked while a log is compressed. */
static bool count_and_go_on(void *data)
{
    asked_to_stop++;
    return false;
}

/* How often that was asked. */
static unsigned pack_by_itself(GHashTable *tried)
{
    struct wb_compact idle = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .stop = count_and_go_on,
                              .tried = tried};

    asked_to_stop = 0;
    ck_assert_int_eq(wb_compact_log(tree.store, &idle, object, WB_FILE_UNDO), 0);
    ck_assert_uint_eq(idle.logs, 1);
    return asked_to_stop;
}

START_TEST(a_log_that_did_not_get_smaller_is_tried_once)
{
    g_autoptr(GHashTable) tried = wb_tried_new();
    uint64_t before;

    write_noise(80, 6000);
    before = file_size();
    ck_assert_uint_gt(pack_by_itself(tried), 0);
    ck_assert_uint_ge(file_size(), before);
    before = file_size();
    ck_assert_uint_eq(pack_by_itself(tried), 0);
    ck_assert_uint_eq(file_size(), before);
    /* A caller that remembers nothing leaves nothing out. */
    ck_assert_uint_gt(pack_by_itself(NULL), 0);
    shift(1);
    ck_assert_uint_gt(pack_by_itself(tried), 0);
    shift(200);
    before = file_size();
    ck_assert_uint_gt(pack_by_itself(tried), 0);
    ck_assert_uint_lt(file_size(), before);
}
END_TEST

static void *pack_and_unpack(void *data)
{
    bool *stop = data;

    for (unsigned i = 0; !__atomic_load_n(stop, __ATOMIC_ACQUIRE); i++) {
        int r = compact(i % 3 == 2 ? WB_COMPACT_UNDO : 0);

        ck_assert_msg(r == 0 || r == -EAGAIN, "%d", r);
    }
    return NULL;
}

/* Written and synced all the while: no record is lost. */
START_TEST(while_it_is_written)
{
    pthread_t thread;
    bool stop = false;

    shift(30);
    ck_assert_int_eq(pthread_create(&thread, NULL, pack_and_unpack, &stop), 0);
    for (int i = 0; i < 120; i++) {
        shift(1);
        if (i % 4 == 0)
            ck_assert_int_eq(wb_store_sync_log(tree.store, object, WB_FILE_UNDO), 0);
        if (i % 16 == 0)
            check_versions();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    check_versions();
    reopen();
    check_versions();
    ck_assert(!leftovers());
}
END_TEST

static bool store_holds(const char *text)
{
    g_autofree char *command =
        g_strdup_printf("grep -rqF '%s' /proc/%d/fd/%d/", text, getpid(), tree.store->dir_fd);

    return system(command) == 0;
}

/* Erased content is gone, and nothing restores it. */
START_TEST(erasing_packed_history)
{
    struct wb_error why = {""};
    struct wb_revision *root;

    shift(60);
    compact_well(0);
    op_write(&tree, "f", 0, "the secret words");
    op_write(&tree, "f", 0, "nothing to see..");
    ck_assert(store_holds("the secret words"));
    op_remove(&tree, "f", false);
    tree_release(&tree);
    ck_assert_int_eq(compact(WB_COMPACT_UNDO), 0);
    ck_assert(store_holds("line 7 says"));
    ck_assert_int_eq(compact(0), 0);
    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &root), 0);
    ck_assert_int_eq(wb_erase(history, root, "f", WB_ERASE_PRESENT, 0, 0, NULL, &why), 0);
    wb_revision_unref(root);
    ck_assert_int_eq(wb_store_has_log(tree.store, object, WB_FILE_UNDO), 0);
    ck_assert_int_eq(compact(0), 0);
    ck_assert_int_eq(compact(WB_COMPACT_UNDO), 0);
    ck_assert(!store_holds("the secret words"));
    ck_assert(!store_holds("line 7 says"));
}
END_TEST

/* ---- the format -------------------------------------------------------------------------------- */

START_TEST(hostile_tables)
{
    struct wb_pack_chunk chunks[6], back[6];
    uint8_t data[6 * WB_PACK_ENTRY_SIZE], head_data[WB_PACK_HEAD_SIZE];
    struct wb_pack_head head = {.count = 6, .packed = 4096}, head_back;

    for (int round = 0; round < 20000; round++) {
        bool good = round % 2 == 0;

        head.unpacked = 0;
        for (unsigned i = 0; i < 6; i++) {
            chunks[i] = (struct wb_pack_chunk){
                .at = 512 + i * 512, .length = 800, .stored = 512, .method = WB_PACK_ZSTD, .check = random_u64()};
            chunks[i].reference = i < 4 && random_below(2) ? 5 - i : 0;
            head.unpacked += chunks[i].length;
        }
        if (!good) {
            struct wb_pack_chunk *bad = &chunks[random_below(6)];

            switch (random_below(6)) {
            case 0: bad->at = random_below(2) ? random_u64() : random_below(200); break;
            case 1: bad->length = random_below(2) ? 0 : WB_PACK_CHUNK_MAX + 1; break;
            case 2: bad->stored = bad->length + 1; break;
            case 3: bad->method = 2 + (uint32_t)random_below(1000); break;
            case 4: bad->reference = 6 + (uint32_t)random_below(UINT32_MAX - 6); break;
            default: bad->method = WB_PACK_PLAIN; break; /* and shorter than its bytes */
            }
            head.unpacked = 0;
            for (unsigned i = 0; i < 6; i++)
                head.unpacked += chunks[i].length;
        }
        for (unsigned i = 0; i < 6; i++)
            wb_pack_encode_chunk(&chunks[i], data + i * WB_PACK_ENTRY_SIZE);
        head.table_check = wb_checksum(data, sizeof(data));
        ck_assert_int_eq(wb_pack_decode_table(&head, data, back), good ? 0 : -EBADMSG);
        if (!good)
            continue;
        ck_assert_mem_eq(back, chunks, sizeof(chunks));
        wb_pack_encode_head(&head, head_data);
        ck_assert_int_eq(wb_pack_decode_head(head_data, &head_back), 0);
        ck_assert(head_back.count == head.count && head_back.unpacked == head.unpacked &&
                  head_back.packed == head.packed && head_back.table_check == head.table_check);
        head_data[random_below(sizeof(head_data))] ^= (uint8_t)(1 + random_below(255));
        ck_assert_int_eq(wb_pack_decode_head(head_data, &head_back), -EBADMSG);
        data[random_below(sizeof(data))] ^= (uint8_t)(1 + random_below(255));
        ck_assert_int_eq(wb_pack_decode_table(&head, data, back), -EBADMSG);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compact");
    TCase *tcase = tcase_create("compact");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup_file, teardown_file);
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, nothing_changes_but_the_size);
    tcase_add_test(tcase, a_log_that_does_not_get_smaller_is_kept);
    tcase_add_test(tcase, before_a_moment);
    tcase_add_test(tcase, a_view_is_exact);
    tcase_add_loop_test(tcase, damage_is_reported, 0, 2);
    tcase_add_test(tcase, a_torn_tail);
    tcase_add_loop_test(tcase, killed_in_the_middle, 0, 8);
    tcase_add_test(tcase, no_space);
    tcase_add_test(tcase, the_background_stops_for_a_requested_packing);
    tcase_add_test(tcase, a_log_that_did_not_get_smaller_is_tried_once);
    tcase_add_test(tcase, while_it_is_written);
    tcase_add_test(tcase, erasing_packed_history);
    tcase_add_test(tcase, hostile_tables);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
