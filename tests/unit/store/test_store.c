/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store on a real directory: opening, refusing, the clock, logs, graveyard, actors, slots. */
#include "base/io.h"
#include "store/parts.h"
#include "store/store.h"
#include "wayback/when.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[PLACE_SIZE], source[PLACE_SIZE + 32], elsewhere[PLACE_SIZE + 32];
static int src_fd;
static struct wb_error why;

static void setup(void)
{
    make_place(top, "store");
    snprintf(source, sizeof(source), "%s/src", top);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", top);
    ck_assert_int_eq(mkdir(source, 0755), 0);
    src_fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(src_fd, 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void teardown(void)
{
    close(src_fd);
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct wb_store *open_store(void)
{
    struct wb_store *store = NULL;
    int r = wb_store_open(&store, src_fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
    return store;
}

static int try_open(const char *path, unsigned flags)
{
    struct wb_store *store = NULL;
    int r = wb_store_open(&store, src_fd, path, flags, &why);

    wb_store_free(store);
    return r;
}

static void write_file(const char *name, const char *text)
{
    int fd = openat(src_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_pwrite_full(fd, text, strlen(text), 0), 0);
    close(fd);
}

static struct wb_object object_of(const char *name)
{
    struct wb_object object;

    ck_assert_int_eq(wb_object_stat(NULL, src_fd, name, &object, NULL, NULL), 0);
    return object;
}

static bool exists(const char *name)
{
    return faccessat(src_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

START_TEST(a_store_is_made_once_and_private)
{
    struct wb_store *store;
    uint8_t uuid[16];
    struct stat before, after, st;

    fstat(src_fd, &before);
    store = open_store();
    fstat(src_fd, &after);
    ck_assert_int_eq(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    ck_assert_int_eq(fstatat(src_fd, ".wayback", &st, 0), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert(exists(".wayback/objects/00") && exists(".wayback/objects/ff"));
    memcpy(uuid, store->header.uuid, 16);
    ck_assert(store->header.created > 0);
    wb_store_free(store);
    store = open_store();
    ck_assert_int_eq(memcmp(uuid, store->header.uuid, 16), 0);
    wb_store_free(store);
}
END_TEST

/* Takes locks of its own and releases them, without end. */
static void take_and_release(int number)
{
    for (;;) {
        int fds[40];

        for (unsigned i = 0; i < G_N_ELEMENTS(fds); i++) {
            g_autofree char *path = g_strdup_printf("%s/lock-%d-%u", top, number, i);

            fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            flock(fds[i], LOCK_EX);
        }
        for (unsigned i = 0; i < G_N_ELEMENTS(fds); i++)
            close(fds[i]);
    }
}

START_TEST(a_held_store_is_held_beside_many_locks)
{
    struct wb_store *store = open_store();
    unsigned missed = 0;
    pid_t others[3];

    for (int i = 0; i < 3; i++) {
        others[i] = fork();
        if (others[i] == 0)
            take_and_release(i);
    }
    for (int i = 0; i < 3000; i++)
        missed += !wb_store_is_held(store);
    for (int i = 0; i < 3; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
    ck_assert_uint_eq(missed, 0);
    wb_store_free(store);
}
END_TEST

START_TEST(a_missing_store_is_reported)
{
    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why.text, "no store"));
    ck_assert_int_eq(try_open(NULL, WB_STORE_CREATE), -ENOENT);
    ck_assert(!exists(".wayback"));
    ck_assert_int_eq(try_open(elsewhere, WB_STORE_WRITE), -ENOENT);
}
END_TEST

START_TEST(an_interrupted_creation_is_done_again)
{
    ck_assert_int_eq(mkdirat(src_fd, ".wayback", 0700), 0);
    ck_assert_int_eq(mkdirat(src_fd, ".wayback/objects", 0700), 0);
    ck_assert_int_eq(mkdirat(src_fd, ".wayback/objects/07", 0700), 0);
    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE), -ENOENT);
    wb_store_free(open_store());
    ck_assert(exists(".wayback/objects/fe"));
}
END_TEST

START_TEST(one_writer_at_a_time_and_readers_beside_it)
{
    struct wb_store *store = open_store(), *reader = NULL;
    char pid[32];

    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE), -EBUSY);
    snprintf(pid, sizeof(pid), "process %d ", getpid());
    ck_assert_msg(strstr(why.text, pid), "%s", why.text);
    ck_assert_int_eq(wb_store_open(&reader, src_fd, NULL, 0, &why), 0);
    ck_assert(!reader->writable);
    wb_store_free(reader);
    wb_store_free(store);
    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE), 0);
}
END_TEST

static void put_header(uint32_t version, uint64_t root)
{
    struct wb_header header = {.version = version, .root = {root, 1}};
    uint8_t data[WB_HEADER_SIZE];
    int fd = openat(src_fd, ".wayback", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    wb_header_encode(&header, data);
    ck_assert_int_eq(wb_replace_file(fd, "header", data, sizeof(data), 0600), 0);
    close(fd);
}

START_TEST(other_headers_are_refused_with_a_message)
{
    int fd;

    wb_store_free(open_store());
    put_header(WB_FORMAT_VERSION + 1, 1);
    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE | WB_STORE_CREATE), -EPROTONOSUPPORT);
    ck_assert_ptr_nonnull(strstr(why.text, "newer"));
    put_header(WB_FORMAT_VERSION, 1);
    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE | WB_STORE_CREATE), -EXDEV);
    ck_assert_ptr_nonnull(strstr(why.text, "another tree"));
    ck_assert_int_eq(try_open(NULL, 0), -EXDEV);
    fd = openat(src_fd, ".wayback/header", O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(wb_pwrite_full(fd, "x", 1, 20), 0);
    close(fd);
    ck_assert_int_eq(try_open(NULL, WB_STORE_WRITE | WB_STORE_CREATE), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(why.text, "damaged"));
}
END_TEST

START_TEST(an_older_store_is_upgraded_by_its_next_writer)
{
    struct wb_store *store = open_store();
    struct wb_header header = store->header;
    uint8_t data[WB_HEADER_SIZE];

    header.version = WB_FORMAT_OLDEST;
    header.manifest = false;
    wb_header_encode(&header, data);
    ck_assert_int_eq(wb_replace_file(store->dir_fd, "header", data, sizeof(data), 0600), 0);
    wb_store_free(store);
    ck_assert_int_eq(wb_store_open(&store, src_fd, NULL, 0, &why), 0);
    ck_assert_uint_eq(store->header.version, WB_FORMAT_OLDEST);
    wb_store_free(store);
    store = open_store();
    wb_store_free(store);
    ck_assert_int_eq(wb_store_open(&store, src_fd, NULL, 0, &why), 0);
    ck_assert_uint_eq(store->header.version, WB_FORMAT_VERSION);
    ck_assert_mem_eq(store->header.uuid, header.uuid, sizeof(header.uuid));
    wb_store_free(store);
}
END_TEST

START_TEST(a_store_elsewhere_is_not_part_of_the_source)
{
    unsigned flags = WB_STORE_WRITE | WB_STORE_CREATE;
    char path[PLACE_SIZE + 64];

    ck_assert_int_eq(try_open(elsewhere, flags), 0);
    ck_assert(exists(".wayback/moved") && !exists(".wayback/header") && !exists(".wayback-staging"));
    ck_assert_int_eq(unlinkat(src_fd, ".wayback/moved", 0), 0);
    snprintf(path, sizeof(path), "%s/store", source);
    ck_assert_int_eq(try_open(path, flags), -EINVAL);
    ck_assert(!exists("store"));
    ck_assert_int_eq(try_open(source, flags), -EINVAL);
    ck_assert_int_eq(mkdirat(src_fd, "deep", 0755), 0);
    snprintf(path, sizeof(path), "%s/deep/store", source);
    ck_assert_int_eq(try_open(path, flags), -EINVAL);
    snprintf(path, sizeof(path), "%s/deep/../.wayback", source);
    ck_assert_int_eq(try_open(path, flags), 0);
    ck_assert(exists(".wayback/header"));
    ck_assert_int_eq(try_open(path, flags), 0);
    /* A directory with other files is not taken over. */
    ck_assert_int_eq(try_open(top, flags), -ENOTEMPTY);
}
END_TEST

START_TEST(a_store_on_another_device_buries_in_the_source)
{
    struct wb_store *store = NULL;
    struct wb_object object;
    char path[] = "/dev/shm/wayback-store-XXXXXX";
    struct stat a, b;

    if (!mkdtemp(path) || stat(path, &a) < 0 || fstat(src_fd, &b) < 0 || a.st_dev == b.st_dev)
        return;
    ck_assert_int_eq(wb_store_open(&store, src_fd, path, WB_STORE_WRITE | WB_STORE_CREATE, &why), 0);
    ck_assert(exists(".wayback/objects/a5"));
    ck_assert(!store->can_clone);
    write_file("f", "x");
    object = object_of("f");
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "f", object, false), 0);
    ck_assert_int_eq(wb_grave_has(store, object, false), 1);
    ck_assert_int_eq(wb_grave_sync(store, object), 0);
    ck_assert_int_eq(wb_grave_unbury(store, object, false, src_fd, "f"), 0);
    wb_store_free(store);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

START_TEST(links_are_not_followed_to_a_store)
{
    ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
    ck_assert_int_eq(symlinkat(elsewhere, src_fd, ".wayback"), 0);
    ck_assert_int_lt(try_open(NULL, WB_STORE_WRITE | WB_STORE_CREATE), 0);
}
END_TEST

/* ---- the clock ------------------------------------------------------------------------------- */

static int64_t append(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_record record = {.type = WB_REC_ABORT};
    struct wb_log *log;

    ck_assert_int_eq(wb_store_get_log(store, object, file, true, &log), 0);
    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(store);
    record.abort.target = record.when - 1;
    ck_assert_int_eq(wb_log_append_locked(log, &record, NULL, 0), 0);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return record.when;
}

START_TEST(the_clock_never_goes_back)
{
    struct wb_store *store = open_store();
    int64_t now = wb_when_now(), ahead = now + 3600 * WB_WHEN_SECOND, last = 0, next;

    for (int i = 0; i < 1000; i++) {
        next = wb_store_tick(store);
        ck_assert_int_gt(next, last);
        last = next;
    }
    ck_assert(last >= now && last < ahead);
    /* As if the wall clock had been set back by an hour. */
    wb_inflight_raise(store->inflight, ahead);
    ck_assert_int_eq(wb_store_tick(store), ahead + 1);
    wb_store_free(store);
    store = open_store();
    ck_assert_int_eq(wb_store_tick(store), ahead + 2);
    wb_store_free(store);
}
END_TEST

START_TEST(the_clock_is_raised_by_the_times_in_logs)
{
    struct wb_store *store = open_store();
    int64_t ahead = wb_when_now() + 3600 * WB_WHEN_SECOND;
    struct wb_log *log;

    wb_inflight_raise(store->inflight, ahead);
    append(store, (struct wb_object){5, 5}, WB_FILE_UNDO);
    wb_store_free(store);
    ck_assert_int_eq(unlinkat(src_fd, ".wayback/inflight", 0), 0);
    store = open_store();
    ck_assert_int_lt(wb_store_tick(store), ahead);
    ck_assert_int_eq(wb_store_get_log(store, (struct wb_object){5, 5}, WB_FILE_UNDO, false, &log), 0);
    wb_store_put_log(store, log);
    ck_assert_int_gt(wb_store_tick(store), ahead);
    wb_store_free(store);
}
END_TEST

START_TEST(after_a_reboot_the_clock_is_beyond_all_synced_times)
{
    struct wb_store *store = open_store();
    int64_t ahead = wb_when_now() + 3600 * WB_WHEN_SECOND;
    uint64_t zero[2] = {0}, boot = 1;
    int fd = openat(src_fd, ".wayback/inflight", O_RDWR | O_CLOEXEC);
    uint8_t synced[4096];

    wb_inflight_raise(store->inflight, ahead);
    ck_assert_int_eq(wb_store_sync_common(store), 0);
    ck_assert_int_eq(wb_pread_exact(fd, synced, sizeof(synced), 0), 0);
    /* Below the mark: the durable file is still that one. */
    wb_inflight_raise(store->inflight, ahead + WB_WHEN_SECOND);
    ck_assert_int_eq(wb_store_sync_common(store), 0);
    wb_store_free(store);
    /* The file as it was durable, in the same boot, and in another. */
    ck_assert_int_eq(wb_pwrite_full(fd, synced, sizeof(synced), 0), 0);
    store = open_store();
    ck_assert_int_eq(wb_store_tick(store), ahead + 1);
    wb_store_free(store);
    ck_assert_int_eq(wb_pwrite_full(fd, synced, sizeof(synced), 0), 0);
    ck_assert_int_eq(wb_pwrite_full(fd, &boot, 8, 24), 0);
    store = open_store();
    ck_assert_int_gt(wb_store_tick(store), ahead + WB_WHEN_SECOND);
    wb_store_free(store);
    /* And a file of noise does no harm. */
    ck_assert_int_eq(wb_pwrite_full(fd, zero, 16, 0), 0);
    close(fd);
    wb_store_free(open_store());
}
END_TEST

/* ---- logs ------------------------------------------------------------------------------------ */

START_TEST(the_same_log_is_the_same_to_all)
{
    struct wb_store *store = open_store();
    struct wb_object object = {1, 1};
    struct wb_log *a, *b, *c;

    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_UNDO, false, &a), -ENOENT);
    ck_assert_int_eq(wb_store_has_log(store, object, WB_FILE_UNDO), 0);
    ck_assert_int_eq(wb_store_sync_log(store, object, WB_FILE_UNDO), 0);
    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_UNDO, true, &a), 0);
    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_UNDO, true, &b), 0);
    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_CATALOG, true, &c), 0);
    ck_assert_ptr_eq(a, b);
    ck_assert_ptr_ne(a, c);
    ck_assert_int_eq(wb_store_has_log(store, object, WB_FILE_UNDO), 1);
    wb_store_put_log(store, a);
    wb_store_put_log(store, b);
    wb_store_put_log(store, c);
    ck_assert_int_eq(unlinkat(store->dir_fd, "objects/01/0000000000000001-0000000000000001.undo", 0), 0);
    wb_store_drop_log(store, object, WB_FILE_UNDO);
    ck_assert_int_eq(wb_store_has_log(store, object, WB_FILE_UNDO), 0);
    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_UNDO, false, &a), -ENOENT);
    wb_store_free(store);
}
END_TEST

#define CROWD 8
#define CROWD_TURNS 2000

static void *crowd_member(void *data)
{
    unsigned seed = (unsigned)(uintptr_t)&data;

    for (int i = 0; i < CROWD_TURNS; i++) {
        struct wb_object object = {(uint64_t)rand_r(&seed) % 300, 1};

        append(data, object, WB_FILE_UNDO);
        wb_store_actor(data, 1, 2, (uint32_t)getpid());
        if (i % 500 == 0)
            ck_assert_int_eq(wb_store_sync_log(data, object, WB_FILE_UNDO), 0);
    }
    return NULL;
}

START_TEST(many_threads_lose_no_record)
{
    struct wb_store *store = open_store();
    pthread_t threads[CROWD];
    unsigned records = 0;

    for (int i = 0; i < CROWD; i++)
        pthread_create(&threads[i], NULL, crowd_member, store);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t i = 0; i < 300; i++) {
        int fd = wb_store_open_file(store, (struct wb_object){i, 1}, WB_FILE_UNDO, O_RDONLY);
        struct wb_log_reader reader;
        struct wb_record record;
        int64_t last = INT64_MAX;
        int r;

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
        while ((r = wb_log_reader_prev(&reader, &record)) == 0) {
            ck_assert_int_lt(record.when, last);
            last = record.when;
            records++;
        }
        ck_assert_int_eq(r, WB_END);
        wb_log_reader_deinit(&reader);
        close(fd);
    }
    ck_assert_uint_eq(records, CROWD * CROWD_TURNS);
    wb_store_free(store);
}
END_TEST

/* ---- slots ----------------------------------------------------------------------------------- */

static int collect(const struct wb_inflight_entry *entry, void *data)
{
    g_array_append_val((GArray *)data, *entry);
    return 0;
}

START_TEST(changes_under_way_are_found_after_a_kill)
{
    g_autoptr(GArray) left = g_array_new(false, false, sizeof(struct wb_inflight_entry));
    const struct wb_inflight_entry *entry;
    struct wb_object a = {1, 2}, b = {3, 4};
    struct wb_store *store;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        int slot;

        store = open_store();
        slot = wb_inflight_begin(store, 100, a, WB_FILE_CATALOG, b, WB_FILE_UNDO, 2);
        wb_inflight_begin(store, 200, b, WB_FILE_UNDO, WB_OBJECT_NONE, WB_FILE_UNDO, 1);
        wb_inflight_begin(store, 150, a, WB_FILE_CATALOG, b, WB_FILE_CATALOG, 3);
        wb_inflight_end(store, slot);
        raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    store = open_store();
    ck_assert_int_eq(wb_inflight_each(store, collect, left), 0);
    ck_assert_uint_eq(left->len, 2);
    entry = &g_array_index(left, struct wb_inflight_entry, 0);
    ck_assert(entry->when == 150 && entry->logs == 3 && entry->a_kind == WB_FILE_CATALOG);
    ck_assert(wb_object_equal(entry->a, a) && wb_object_equal(entry->b, b));
    entry = &g_array_index(left, struct wb_inflight_entry, 1);
    ck_assert(entry->when == 200 && entry->logs == 1 && wb_object_equal(entry->a, b));
    ck_assert_int_eq(wb_inflight_clear(store), 0);
    g_array_set_size(left, 0);
    ck_assert_int_eq(wb_inflight_each(store, collect, left), 0);
    wb_store_free(store);
    store = open_store();
    ck_assert_int_eq(wb_inflight_each(store, collect, left), 0);
    ck_assert_uint_eq(left->len, 0);
    wb_store_free(store);
}
END_TEST

static void *end_later(void *data)
{
    g_usleep(20000);
    wb_inflight_end(data, 17);
    return NULL;
}

START_TEST(a_caller_without_a_slot_waits_for_one)
{
    struct wb_store *store = open_store();
    pthread_t thread;

    for (int i = 0; i < WB_INFLIGHT_SLOTS; i++)
        ck_assert_int_eq(wb_inflight_begin(store, i + 1, (struct wb_object){1, 1}, WB_FILE_UNDO,
                                           WB_OBJECT_NONE, WB_FILE_UNDO, 1), i);
    pthread_create(&thread, NULL, end_later, store);
    ck_assert_int_eq(wb_inflight_begin(store, 99, (struct wb_object){1, 1}, WB_FILE_UNDO,
                                       WB_OBJECT_NONE, WB_FILE_UNDO, 1), 17);
    pthread_join(thread, NULL);
    wb_store_free(store);
}
END_TEST

/* ---- graveyard ------------------------------------------------------------------------------- */

START_TEST(a_buried_file_is_restored_as_the_same)
{
    struct wb_store *store = open_store();
    struct wb_object object;
    char text[4] = "";
    int fd;

    write_file("f", "abc");
    object = object_of("f");
    ck_assert_int_eq(wb_grave_has(store, object, false), 0);
    ck_assert_int_eq(wb_grave_open(store, object, false, O_RDONLY), -ENOENT);
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "f", object, false), 0);
    ck_assert(!exists("f"));
    ck_assert_int_eq(wb_grave_has(store, object, false), 1);
    fd = wb_grave_open(store, object, false, O_RDONLY);
    ck_assert_int_eq(wb_pread_exact(fd, text, 3, 0), 0);
    ck_assert_str_eq(text, "abc");
    close(fd);
    write_file("taken", "");
    ck_assert_int_eq(wb_grave_unbury(store, object, false, src_fd, "taken"), -EEXIST);
    ck_assert_int_eq(wb_grave_unbury(store, object, false, src_fd, "back"), 0);
    ck_assert(wb_object_equal(object_of("back"), object));
    ck_assert_int_eq(wb_grave_has(store, object, false), 0);
    wb_store_free(store);
}
END_TEST

START_TEST(hard_links_are_removed_and_restored_one_by_one)
{
    struct wb_store *store = open_store();
    struct wb_object object;
    struct stat st;

    write_file("a", "abc");
    ck_assert_int_eq(linkat(src_fd, "a", src_fd, "b", 0), 0);
    ck_assert_int_eq(linkat(src_fd, "a", src_fd, "c", 0), 0);
    object = object_of("a");
    ck_assert(wb_object_equal(object_of("b"), object));
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "a", object, false), 0);
    ck_assert_int_eq(fstatat(src_fd, "b", &st, 0), 0);
    ck_assert_uint_eq(st.st_nlink, 3);
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "b", object, false), 0);
    ck_assert(!exists("a") && !exists("b"));
    ck_assert_int_eq(wb_grave_keep_link(store, src_fd, "c", object), 0);
    ck_assert_int_eq(wb_grave_unbury(store, object, false, src_fd, "a"), 0);
    ck_assert_int_eq(fstatat(src_fd, "a", &st, 0), 0);
    ck_assert_uint_eq(st.st_nlink, 3);
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "a", object, false), 0);
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "c", object, false), 0);
    ck_assert_int_eq(wb_grave_unbury(store, object, false, src_fd, "c"), 0);
    ck_assert_int_eq(fstatat(src_fd, "c", &st, 0), 0);
    ck_assert_uint_eq(st.st_nlink, 1);
    ck_assert_int_eq(wb_grave_has(store, object, false), 0);
    wb_store_free(store);
}
END_TEST

START_TEST(a_replaced_file_is_kept_by_a_link)
{
    struct wb_store *store = open_store();
    struct wb_object victim;

    write_file("old", "old");
    write_file("new", "new");
    victim = object_of("old");
    ck_assert_int_eq(wb_grave_keep_link(store, src_fd, "old", victim), 0);
    ck_assert_int_eq(renameat(src_fd, "new", src_fd, "old"), 0);
    ck_assert_int_eq(wb_grave_has(store, victim, false), 1);
    ck_assert_int_eq(wb_grave_unbury(store, victim, false, src_fd, "new"), 0);
    ck_assert(wb_object_equal(object_of("new"), victim));
    wb_store_free(store);
}
END_TEST

START_TEST(directories_and_links_are_buried_too)
{
    struct wb_store *store = open_store();
    struct wb_object dir, link;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    ck_assert_int_eq(mkdirat(src_fd, "d", 0755), 0);
    ck_assert_int_eq(fchmodat(src_fd, "d", 0555, 0), 0);
    ck_assert_int_eq(symlinkat("nowhere", src_fd, "l"), 0);
    dir = object_of("d");
    link = object_of("l");
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "d", dir, true), 0);
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "l", link, false), 0);
    ck_assert(!exists("d") && !exists("l"));
    ck_assert_int_eq(wb_grave_has(store, dir, true), 1);
    ck_assert_int_eq(wb_grave_unbury(store, dir, true, src_fd, "d"), 0);
    ck_assert_int_eq(wb_grave_unbury(store, link, false, src_fd, "l"), 0);
    ck_assert(wb_object_equal(object_of("d"), dir) && wb_object_equal(object_of("l"), link));
    ck_assert_int_eq(fstatat(src_fd, "d", &st, 0), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0555);
    /* An empty leftover under its name is replaced. */
    wb_object_path(dir, WB_FILE_DIR, path);
    ck_assert_int_eq(mkdirat(store->grave_fd, path, 0700), 0);
    ck_assert_int_eq(wb_grave_bury_name(store, src_fd, "d", dir, true), 0);
    ck_assert_int_eq(wb_grave_unbury(store, dir, true, src_fd, "d"), 0);
    ck_assert(wb_object_equal(object_of("d"), dir));
    wb_store_free(store);
}
END_TEST

START_TEST(an_object_is_one_whatever_its_mode_and_descriptor)
{
    struct wb_store *store = open_store();
    struct wb_object object, again;
    struct wb_attrs attrs;
    struct stat st, plain;
    int fd;

    write_file("f", "abcde");
    object = object_of("f");
    ck_assert_int_eq(fchmodat(src_fd, "f", 0, 0), 0);
    fd = openat(src_fd, "f", O_PATH | O_CLOEXEC);
    ck_assert_int_eq(wb_object_stat(store, fd, NULL, &again, &attrs, &st), 0);
    ck_assert(wb_object_equal(object, again));
    ck_assert_int_eq(fstat(fd, &plain), 0);
    ck_assert_int_eq(memcmp(&st, &plain, sizeof(st)), 0);
    ck_assert_uint_eq(attrs.size, 5);
    ck_assert_uint_eq(attrs.mode, S_IFREG);
    ck_assert_int_eq(attrs.mtime, plain.st_mtim.tv_sec * WB_WHEN_SECOND + plain.st_mtim.tv_nsec);
    close(fd);
    ck_assert_int_eq(wb_object_stat(store, src_fd, "none", &again, NULL, NULL), -ENOENT);
    fd = open("/proc", O_PATH | O_CLOEXEC);
    ck_assert_int_eq(wb_object_stat(store, fd, "", &again, NULL, NULL), -EXDEV);
    ck_assert_int_eq(wb_object_stat(NULL, fd, "", &again, NULL, NULL), 0);
    close(fd);
    wb_store_free(store);
}
END_TEST

/* ---- actors ---------------------------------------------------------------------------------- */

static void copy_in_store(const struct wb_store *store, const char *name, const char *to)
{
    int from_fd = openat(store->dir_fd, name, O_RDONLY | O_CLOEXEC);
    int to_fd = openat(store->dir_fd, to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;

    ck_assert_int_eq(fstat(from_fd, &st), 0);
    ck_assert_int_eq(copy_file_range(from_fd, NULL, to_fd, NULL, (size_t)st.st_size, 0), st.st_size);
    close(from_fd);
    close(to_fd);
}

START_TEST(actors_are_written_once_and_found_again)
{
    struct wb_store *store = open_store(), *reader = NULL;
    uint32_t me, again, kernel, gone, last;
    struct wb_actor actor;

    me = wb_store_actor(store, 11, 12, (uint32_t)getpid());
    ck_assert_uint_gt(me, 0);
    ck_assert_uint_eq(wb_store_actor(store, 11, 12, (uint32_t)getpid()), me);
    g_usleep(120000);
    ck_assert_uint_eq(wb_store_actor(store, 11, 12, (uint32_t)getpid()), me);
    again = wb_store_actor(store, 13, 12, (uint32_t)getpid());
    ck_assert_uint_ne(again, me);
    kernel = wb_store_actor(store, 0, 0, 0);
    gone = wb_store_actor(store, 0, 0, 0x7ffffff0);
    ck_assert_int_eq(wb_store_sync_common(store), 0);

    ck_assert_int_eq(wb_store_open(&reader, src_fd, NULL, 0, &why), 0);
    ck_assert_int_eq(wb_store_actor_info(reader, me, WB_WHEN_PRESENT, &actor), 0);
    ck_assert(actor.uid == 11 && actor.gid == 12 && actor.pid == (uint32_t)getpid());
    ck_assert_ptr_nonnull(strstr(actor.command, "test_store"));
    ck_assert_int_eq(wb_store_actor_info(reader, kernel, WB_WHEN_PRESENT, &actor), 0);
    ck_assert_str_eq(actor.command, "[kernel]");
    ck_assert_int_eq(wb_store_actor_info(reader, gone, WB_WHEN_PRESENT, &actor), 0);
    ck_assert_str_eq(actor.command, "");
    ck_assert_int_eq(wb_store_actor_info(reader, 0, WB_WHEN_PRESENT, &actor), WB_ABSENT);
    ck_assert_int_eq(wb_store_actor_info(reader, 1u << 30, WB_WHEN_PRESENT, &actor), WB_ABSENT);
    wb_store_free(reader);

    /* Commands that were not erased are found in the new file as in the old one, and later writers use it. */
    wb_store_actors_hold(store);
    ck_assert_int_eq(wb_store_actors_exchange(store, "actors.new"), -ENOENT);
    copy_in_store(store, "actors", "actors.new");
    ck_assert_int_eq(wb_store_actors_exchange(store, "actors.new"), 0);
    wb_store_actors_release(store);
    last = wb_store_actor(store, 11, 12, (uint32_t)getpid());
    ck_assert_uint_gt(last, gone);
    ck_assert_int_eq(wb_store_actor_info(store, last, WB_WHEN_PRESENT, &actor), 0);
    ck_assert(actor.uid == 11 && actor.pid == (uint32_t)getpid());
    ck_assert_int_eq(wb_store_actor_info(store, kernel, WB_WHEN_PRESENT, &actor), 0);
    ck_assert_str_eq(actor.command, "[kernel]");
    ck_assert_int_eq(wb_store_sync_common(store), 0);
    wb_store_free(store);
}
END_TEST

static void add_opening(TCase *tests)
{
    tcase_add_test(tests, a_store_is_made_once_and_private);
    tcase_add_test(tests, a_held_store_is_held_beside_many_locks);
    tcase_add_test(tests, a_missing_store_is_reported);
    tcase_add_test(tests, an_interrupted_creation_is_done_again);
    tcase_add_test(tests, one_writer_at_a_time_and_readers_beside_it);
    tcase_add_test(tests, other_headers_are_refused_with_a_message);
    tcase_add_test(tests, an_older_store_is_upgraded_by_its_next_writer);
    tcase_add_test(tests, a_store_elsewhere_is_not_part_of_the_source);
    tcase_add_test(tests, a_store_on_another_device_buries_in_the_source);
    tcase_add_test(tests, links_are_not_followed_to_a_store);
}

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tests = tcase_create("store");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    add_opening(tests);
    tcase_add_test(tests, the_clock_never_goes_back);
    tcase_add_test(tests, the_clock_is_raised_by_the_times_in_logs);
    tcase_add_test(tests, after_a_reboot_the_clock_is_beyond_all_synced_times);
    tcase_add_test(tests, the_same_log_is_the_same_to_all);
    tcase_add_test(tests, many_threads_lose_no_record);
    tcase_add_test(tests, changes_under_way_are_found_after_a_kill);
    tcase_add_test(tests, a_caller_without_a_slot_waits_for_one);
    tcase_add_test(tests, a_buried_file_is_restored_as_the_same);
    tcase_add_test(tests, hard_links_are_removed_and_restored_one_by_one);
    tcase_add_test(tests, a_replaced_file_is_kept_by_a_link);
    tcase_add_test(tests, directories_and_links_are_buried_too);
    tcase_add_test(tests, an_object_is_one_whatever_its_mode_and_descriptor);
    tcase_add_test(tests, actors_are_written_once_and_found_again);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
