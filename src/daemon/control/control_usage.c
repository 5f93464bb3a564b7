/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * USAGE: the space that history takes. A request works on it for a tenth of a second and keeps it for the next one; at
 * the end directories, files and programs become items, and the items are returned in pages.
 */
#include "daemon/control/control.h"

#include "daemon/keeper/keeper.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "maintain/usage/usage.h"
#include "store/tables/spenders.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PATIENCE (100 * G_TIME_SPAN_MILLISECOND)
/* Below a longer path, what is there belongs to its last row. */
#define ROW_PATH_MAX (WB_CONTROL_PATH_MAX - 1)
/* A cursor is the number of what is kept, and of the step. */
#define STEP_BITS 32

_Static_assert((int)WB_USAGE_KINDS == (int)WB_CONTROL_USAGE_KINDS && WB_USAGE_AGES == WB_CONTROL_USAGE_AGES &&
                   (int)WB_USAGE_BODY == (int)WB_CONTROL_USAGE_BODIES, "both count alike");
_Static_assert(sizeof(struct wb_control_usage) + sizeof(struct wb_control_usage_dir) + WB_CONTROL_PATH_MAX + 8 <
                   WB_CONTROL_DATA_MAX, "a row fits into a reply");

struct row {
    uint64_t files, bytes, disk, shared;
    int64_t oldest, newest;
    char *path;
};

/* The number of files examined for callers that may see all of them, and for others, where each needs a check. */
#define FILES_MAX (1u << 16)
#define FILES_OF_OTHERS_MAX (1u << 9)
#define ITEMS_MAX 1000u

struct kept {
    struct wb_paged paged;
    uint64_t cursor; /* that goes on with it */
    uint32_t uid;
    struct wb_object scope;
    bool is_dir, keeper, whole, scanned, part;
    unsigned depth, most;
    struct wb_usage usage;
    GPtrArray *dirs; /* to be looked at; borrowed */
    guint at, at_file;
    struct wb_usage_total total;
    struct wb_usage_shares shares; /* of it */
    GHashTable *paths; /* path -> struct row */
    GPtrArray *rows;   /* the same, in order; NULL: not yet */
    GHashTable *file_paths; /* the same of files */
    GPtrArray *files;
    uint64_t rest;     /* bytes of programs that are not listed */
    guint shown;       /* items of all kinds */
};

static void row_free(void *data)
{
    struct row *row = data;

    g_free(row->path);
    g_free(row);
}

static void free_paged(struct wb_paged *paged)
{
    struct kept *kept = (struct kept *)paged;

    if (kept->dirs)
        g_ptr_array_unref(kept->dirs);
    if (kept->rows)
        g_ptr_array_unref(kept->rows);
    if (kept->files)
        g_ptr_array_unref(kept->files);
    g_hash_table_unref(kept->paths);
    g_hash_table_unref(kept->file_paths);
    wb_usage_shares_clear(&kept->usage.programs, &kept->shares);
    wb_usage_deinit(&kept->usage);
    g_free(kept);
}

static bool continues(const struct wb_paged *paged, const struct wb_paged *other)
{
    const struct kept *kept = (const struct kept *)paged, *wanted = (const struct kept *)other;

    return kept->cursor == wanted->cursor && kept->uid == wanted->uid;
}

/* ---- what the caller may see --------------------------------------------------------------------------- */

static int was_open(struct kept *kept, const struct wb_request *request, struct wb_past_perm *perm,
                    const struct wb_usage_dir *dir, int64_t first)
{
    struct wb_past_perm_query access = {.dir = dir->self, .mask = R_OK | X_OK, .may_now = wb_past_owns_or_may_now};
    int r = wb_past_perm_check_since(perm, request, &access, first, kept->usage.now);

    if (r == 0 && dir->gone)
        r = wb_past_perm_check_since(perm, request, &access, MIN(first, dir->gone), dir->gone);
    return r;
}

/*
 * Sums span all the time since the oldest record in them; so all that time the directory must have been open, and those
 * above it, whose entries its path names. 1, 0 or -errno.
 */
static int may_show(struct kept *kept, const struct wb_request *request, struct wb_past_perm *perm, int64_t oldest,
                    const struct wb_usage_dir *const *chain, unsigned depth)
{
    const struct wb_usage_dir *scope = g_hash_table_lookup(kept->usage.dirs, &kept->scope);
    int64_t first = oldest ? oldest : kept->usage.now;
    int r = 1;

    if (kept->keeper)
        return 1;
    if (scope)
        r = was_open(kept, request, perm, scope, first);
    for (unsigned i = 0; r == 1 && i < depth; i++)
        r = was_open(kept, request, perm, chain[i], first);
    return r;
}

/*
 * The history of a file shows more than stat(2) does: the caller must have been able to read it all that time, as for a
 * request about the file itself. 1, 0 or -errno.
 */
static int may_show_file(struct kept *kept, const struct wb_request *request, struct wb_past_perm *perm,
                         const struct wb_usage_file *file, const struct wb_usage_dir *const *chain, unsigned depth)
{
    struct wb_past_perm_query access = {.dir = file->dir, .name = file->name, .object = file->object, .mask = R_OK,
                                        .may_now = wb_past_owns_or_may_now};
    int64_t until = file->lost ? file->lost : kept->usage.now;
    int r = may_show(kept, request, perm, file->oldest, chain, depth);

    if (r == 1 && !kept->keeper)
        r = wb_past_perm_check_since(perm, request, &access, file->oldest ? MIN(file->oldest, until) : until, until);
    return r;
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

static struct row *row_of(GHashTable *paths, const char *path)
{
    struct row *row = g_hash_table_lookup(paths, path);

    if (!row) {
        row = g_new0(struct row, 1);
        row->path = g_strdup(path);
        g_hash_table_insert(paths, row->path, row);
    }
    return row;
}

static void note_times(struct row *row, int64_t oldest, int64_t newest)
{
    row->newest = MAX(row->newest, newest);
    if (oldest && (!row->oldest || oldest < row->oldest))
        row->oldest = oldest;
}

static void add_row(struct kept *kept, const char *path, const struct wb_usage_total *total)
{
    struct row *row = row_of(kept->paths, path);

    for (unsigned i = 0; i < G_N_ELEMENTS(total->kinds); i++) {
        row->files += total->kinds[i].files;
        row->bytes += total->kinds[i].bytes;
        row->disk += total->kinds[i].disk;
        row->shared += total->kinds[i].shared;
    }
    note_times(row, total->oldest, total->newest);
}

static bool is_empty(const struct wb_usage_total *total)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(total->kinds); i++)
        if (total->kinds[i].files > 0)
            return false;
    return true;
}

/* A directory goes into the sum, and into the row of each that it is below, down to the depth asked for. */
static int add_dir(struct kept *kept, const struct wb_request *request, struct wb_past_perm *perm,
                   const struct wb_usage_dir *dir)
{
    const struct wb_usage_dir *chain[WB_USAGE_DEPTH_MAX];
    g_autoptr(GString) path = NULL;
    unsigned depth;
    int r;

    if (is_empty(&dir->total))
        return 0;
    if (!wb_usage_chain(&kept->usage, dir, kept->scope, chain, &depth)) {
        if (kept->whole) {
            wb_usage_add(&kept->usage.unplaced, &dir->total);
            wb_usage_shares_add(&kept->usage.programs, &kept->usage.unplaced_shares, &dir->shares);
        }
        return 0;
    }
    r = may_show(kept, request, perm, dir->total.oldest, chain, depth);
    if (r <= 0) {
        kept->part |= r == 0;
        return r;
    }
    wb_usage_add(&kept->total, &dir->total);
    wb_usage_shares_add(&kept->usage.programs, &kept->shares, &dir->shares);
    path = g_string_new("");
    add_row(kept, path->str, &dir->total);
    for (unsigned i = 0; i < MIN(depth, kept->depth); i++) {
        if (path->len + strlen(chain[i]->name) + 1 > ROW_PATH_MAX)
            break;
        if (path->len > 0)
            g_string_append_c(path, '/');
        g_string_append(path, chain[i]->name);
        add_row(kept, path->str, &dir->total);
    }
    return 0;
}

/* A file, if it is below what was asked for and the caller may see it. 0 or -errno. */
static int add_file(struct kept *kept, const struct wb_request *request, struct wb_past_perm *perm,
                    const struct wb_usage_file *file)
{
    const struct wb_usage_dir *dir = g_hash_table_lookup(kept->usage.dirs, &file->dir);
    const struct wb_usage_dir *chain[WB_USAGE_DEPTH_MAX];
    g_autoptr(GString) path = NULL;
    struct row *row;
    unsigned depth;
    int r;

    if (!dir || !wb_usage_chain(&kept->usage, dir, kept->scope, chain, &depth))
        return 0;
    r = may_show_file(kept, request, perm, file, chain, depth);
    if (r <= 0)
        return r;
    path = g_string_new("");
    for (unsigned i = 0; i < depth; i++) {
        g_string_append(path, chain[i]->name);
        g_string_append_c(path, '/');
        if (path->len > ROW_PATH_MAX)
            return 0;
    }
    g_string_append(path, file->name);
    if (path->len > ROW_PATH_MAX)
        return 0;
    row = row_of(kept->file_paths, path->str);
    row->files += file->files;
    row->bytes += file->bytes;
    row->disk += file->disk;
    row->shared += file->shared;
    note_times(row, file->oldest, file->newest);
    return 0;
}

static int by_size_of_row(const void *a, const void *b)
{
    const struct row *x = *(const struct row *const *)a, *y = *(const struct row *const *)b;

    if (x->disk != y->disk)
        return x->disk < y->disk ? 1 : -1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->path, y->path);
}

static void sort_files(struct kept *kept)
{
    GHashTableIter iter;
    void *value;

    kept->files = g_ptr_array_new();
    g_hash_table_iter_init(&iter, kept->file_paths);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        g_ptr_array_add(kept->files, value);
    g_ptr_array_sort(kept->files, by_size_of_row);
    if (kept->files->len > kept->most)
        g_ptr_array_set_size(kept->files, (gint)kept->most);
    g_clear_pointer(&kept->usage.largest, g_ptr_array_unref);
}

static int by_bytes(const void *a, const void *b)
{
    uint64_t x = ((const struct wb_usage_share *)a)->bytes, y = ((const struct wb_usage_share *)b)->bytes;

    return x > y ? -1 : x < y;
}

/* The programs that the caller may see, the largest first; the others become one sum. */
static void sort_programs(struct kept *kept)
{
    struct wb_usage_shares *shares = &kept->shares;
    unsigned count = 0;

    kept->rest = shares->unknown;
    if (shares->count > 1)
        qsort(shares->list, shares->count, sizeof(*shares->list), by_bytes);
    for (unsigned i = 0; i < shares->count; i++) {
        const struct wb_usage_program *program = kept->usage.programs.all->pdata[shares->list[i].program];

        if (count < kept->most && (kept->keeper || program->uid == kept->uid))
            shares->list[count++] = shares->list[i];
        else
            kept->rest += shares->list[i].bytes;
    }
    shares->count = count;
}

static int by_path(const void *a, const void *b)
{
    return strcmp((*(struct row *const *)a)->path, (*(struct row *const *)b)->path);
}

/* All directories are in: the rows in order. */
static void sort_rows(struct kept *kept)
{
    GHashTableIter iter;
    void *value;

    kept->rows = g_ptr_array_new();
    g_hash_table_iter_init(&iter, kept->paths);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        g_ptr_array_add(kept->rows, value);
    g_ptr_array_sort(kept->rows, by_path);
    g_clear_pointer(&kept->dirs, g_ptr_array_unref);
    g_hash_table_remove_all(kept->usage.dirs);
    if (kept->whole) {
        wb_usage_add(&kept->total, &kept->usage.unplaced);
        wb_usage_shares_add(&kept->usage.programs, &kept->shares, &kept->usage.unplaced_shares);
    }
    sort_files(kept);
    sort_programs(kept);
}

/* The next directory, or file. False: all are done, or *error. */
static bool add_next(struct kept *kept, const struct wb_request *request, struct wb_past_perm *perm, int *error)
{
    const GPtrArray *largest = kept->usage.largest;
    /* Each file of others needs a check of milliseconds. They come in order of their size. */
    bool enough = !kept->keeper && g_hash_table_size(kept->file_paths) >= kept->most;

    if (kept->at < kept->dirs->len)
        *error = add_dir(kept, request, perm, kept->dirs->pdata[kept->at++]);
    else if (largest && kept->at_file < largest->len && !enough)
        *error = add_file(kept, request, perm, largest->pdata[kept->at_file++]);
    else
        return false;
    return *error == 0;
}

/* Goes on. 1: there is more to do, 0 or -errno. */
static int work(struct kept *kept, const struct wb_request *request)
{
    int64_t deadline = g_get_monotonic_time() + PATIENCE;
    struct wb_past_perm *perm;
    GHashTableIter iter;
    void *value;
    int r = 0;

    kept->usage.stop = wb_control_is_over;
    kept->usage.stop_data = (void *)(uintptr_t)request;
    if (!kept->scanned) {
        r = wb_usage_step(&kept->usage, deadline);
        if (r != 0)
            return r;
        kept->scanned = true;
        kept->dirs = g_ptr_array_sized_new(g_hash_table_size(kept->usage.dirs));
        g_hash_table_iter_init(&iter, kept->usage.dirs);
        while (g_hash_table_iter_next(&iter, NULL, &value))
            g_ptr_array_add(kept->dirs, value);
        if (kept->usage.largest)
            wb_usage_largest_cut(kept->usage.largest, kept->usage.largest_most);
    }
    if (kept->rows)
        return 0;
    perm = kept->keeper ? NULL : wb_past_perm_acquire(request);
    while (add_next(kept, request, perm, &r))
        if (g_get_monotonic_time() > deadline) {
            r = wb_control_is_over((void *)(uintptr_t)request) ? -ECANCELED : 1;
            break;
        }
    wb_past_perm_release(request, perm);
    if (r == 0)
        sort_rows(kept);
    return r;
}

/* ---- the reply ------------------------------------------------------------------------------------------- */

static void put_sum(struct wb_control_usage_sum *to, const struct wb_usage_sum *one)
{
    *to = (struct wb_control_usage_sum){one->files, one->bytes, one->stored, one->disk, one->shared};
}

static void put_sums(const struct kept *kept, const struct wb_request *request, struct wb_control_usage *reply)
{
    struct wb_store *store = request->session->store;
    struct statvfs fs;

    for (unsigned i = 0; i <= WB_USAGE_BODY; i++)
        put_sum(&reply->kinds[i], &kept->total.kinds[i]);
    /* What lies beside logs that has no object (half-written files, and directories) is with the rest. */
    for (unsigned i = WB_USAGE_BODY + 1; kept->whole && i < WB_USAGE_KINDS; i++)
        put_sum(&reply->kinds[i], &kept->usage.rest[i]);
    memcpy(reply->ages, kept->total.ages, sizeof(reply->ages));
    reply->packed = kept->total.packed;
    reply->damaged = kept->keeper ? kept->usage.damaged : 0;
    reply->oldest = MAX(kept->total.oldest, wb_store_horizon(request->session->store));
    reply->newest = kept->total.newest;
    reply->gaps = kept->total.gaps;
    reply->gaps_since = kept->total.gaps_since;
    reply->gaps_until = kept->total.gaps_until;
    reply->created = store->header.created;
    reply->now = kept->usage.now;
    if (fstatvfs(store->dir_fd, &fs) == 0) {
        reply->room = (uint64_t)fs.f_blocks * fs.f_frsize;
        reply->free = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
}

/* Each returns the size of the item, or 0 if there is no space for it in the reply. */
static size_t put_row(struct wb_control *out, size_t used, const struct row *row, uint32_t kind)
{
    size_t length = strlen(row->path) + 1, size = (sizeof(struct wb_control_usage_dir) + length + 7) & ~(size_t)7;
    struct wb_control_usage_dir *item = (struct wb_control_usage_dir *)(void *)(out->data + used);

    if (size > sizeof(out->data) - used)
        return 0;
    *item = (struct wb_control_usage_dir){.size = (uint32_t)size, .kind = kind, .files = row->files,
                                          .bytes = row->bytes, .disk = row->disk, .shared = row->shared,
                                          .oldest = row->oldest, .newest = row->newest};
    memcpy(item->path, row->path, length);
    return size;
}

static size_t put_program(struct wb_control *out, size_t used, const struct wb_usage_program *program, uint64_t bytes,
                          int64_t newest)
{
    const char *name = program ? program->name : "";
    size_t length = strlen(name) + 1, size = (sizeof(struct wb_control_usage_program) + length + 7) & ~(size_t)7;
    struct wb_control_usage_program *item = (struct wb_control_usage_program *)(void *)(out->data + used);

    if (size > sizeof(out->data) - used)
        return 0;
    *item = (struct wb_control_usage_program){
        .size = (uint32_t)size,
        .kind = program ? WB_CONTROL_USAGE_ITEM_PROGRAM : WB_CONTROL_USAGE_ITEM_REST,
        .uid = program ? program->uid : 0, .bytes = bytes, .newest = newest};
    memcpy(item->name, name, length);
    return size;
}

static size_t put_item(const struct kept *kept, guint at, struct wb_control *out, size_t used)
{
    const struct wb_usage_share *share;

    if (at < kept->rows->len)
        return put_row(out, used, kept->rows->pdata[at], WB_CONTROL_USAGE_ITEM_DIR);
    at -= kept->rows->len;
    if (at < kept->files->len)
        return put_row(out, used, kept->files->pdata[at], WB_CONTROL_USAGE_ITEM_FILE);
    at -= kept->files->len;
    if (at == kept->shares.count)
        return put_program(out, used, NULL, kept->rest, 0);
    share = &kept->shares.list[at];
    return put_program(out, used, kept->usage.programs.all->pdata[share->program], share->bytes, share->newest);
}

static guint count_items(const struct kept *kept)
{
    guint programs = kept->most > 0 ? kept->shares.count + (kept->rest > 0) : 0;

    return kept->rows->len + kept->files->len + programs;
}

static void put_items(struct kept *kept, struct wb_control *out)
{
    size_t used = sizeof(struct wb_control_usage), size;

    for (; kept->shown < count_items(kept); kept->shown++) {
        size = put_item(kept, kept->shown, out, used);
        if (size == 0)
            return;
        used += size;
        out->count++;
    }
}

/* ---- the request ------------------------------------------------------------------------------------------- */

/* A file is looked at at once: it has three files in the store at most. */
static int look_at_file(struct kept *kept, const struct wb_request *request, struct wb_revision *dir, const char *name,
                        struct wb_revision *revision)
{
    struct wb_past_perm_query access = {.hint = dir,
                                    .dir = wb_revision_object(dir),
                                    .name = name,
                                    .object = wb_revision_object(revision),
                                    .mask = R_OK,
                                    .may_now = wb_past_owns_or_may_now};
    int64_t when = wb_revision_when(revision) == WB_WHEN_PRESENT ? kept->usage.now : wb_revision_when(revision) + 1;
    struct wb_past_perm *perm = NULL;
    int r = wb_usage_of(&kept->usage, kept->scope, &kept->total, &kept->shares);

    if (r == 0 && !kept->keeper) {
        perm = wb_past_perm_acquire(request);
        r = wb_past_perm_check_since(perm, request, &access, kept->total.oldest ? MIN(kept->total.oldest, when) : when,
                                     when);
        wb_past_perm_release(request, perm);
        r = r < 0 ? r : r == 1 ? 0 : -EACCES;
    }
    if (r < 0)
        return r;
    kept->scanned = true;
    add_row(kept, "", &kept->total);
    sort_rows(kept);
    return 0;
}

static int begin(const struct wb_request *request, struct kept **ret)
{
    static _Atomic uint32_t numbers;
    const struct wb_control_usage_ask *ask = (const struct wb_control_usage_ask *)(const void *)request->in->data;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_store *store = request->session->store;
    g_autofree char *name = NULL;
    struct kept *kept;
    int r = wb_control_find(request, request->in->path, &dir, &name);

    if (r == 0)
        r = wb_control_may_read(request, dir, name);
    if (r == 0)
        r = wb_control_entry_or_last(request, dir, name, &revision);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    kept = g_try_new0(struct kept, 1);
    if (!kept)
        return -ENOMEM;
    kept->paged.generation = wb_pages_generation(request->session->past);
    kept->cursor = (uint64_t)(atomic_fetch_add(&numbers, 1) % (UINT32_MAX / 2) + 1) << STEP_BITS;
    kept->uid = fuse_req_ctx(request->req)->uid;
    kept->scope = wb_revision_object(revision);
    kept->is_dir = wb_revision_type(revision) == S_IFDIR;
    kept->keeper = wb_control_is_keeper(request);
    kept->whole = kept->keeper && wb_object_equal(kept->scope, store->header.root);
    kept->depth = ask->depth;
    kept->most = MIN(ask->most, ITEMS_MAX);
    kept->paths = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, row_free);
    kept->file_paths = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, row_free);
    wb_usage_init(&kept->usage, store, wb_store_now(store));
    kept->usage.largest = kept->is_dir && kept->most > 0 ? wb_usage_largest_new() : NULL;
    kept->usage.largest_most = kept->keeper ? FILES_MAX : FILES_OF_OTHERS_MAX;
    r = kept->is_dir ? 0 : look_at_file(kept, request, dir, name, revision);
    if (r < 0)
        free_paged(&kept->paged);
    else
        *ret = kept;
    return r;
}

static void put_user(struct wb_control *out, const struct wb_spender *user)
{
    struct wb_control_user *users =
        (struct wb_control_user *)(void *)(out->data + sizeof(struct wb_control_budget));

    users[out->count++] = (struct wb_control_user){user->uid, user->stuck ? WB_CONTROL_USER_STUCK : 0, user->bytes};
}

static int put_own(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_budget *budget = (struct wb_control_budget *)(void *)out->data;
    struct wb_spender user;

    if (!wb_spenders_get(request->session->store, fuse_req_ctx(request->req)->uid, &user))
        return -EPERM;
    *budget = (struct wb_control_budget){.user_max_size = atomic_load(&request->session->store->user_limit)};
    out->flags = WB_CONTROL_BUDGET_OWN;
    put_user(out, &user);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = ((const struct wb_spender *)a)->bytes, y = ((const struct wb_spender *)b)->bytes;

    return x > y ? -1 : x < y;
}

static int put_users(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_budget *budget = (struct wb_control_budget *)(void *)out->data;
    g_autofree struct wb_spender *users = NULL;
    int64_t count = wb_spenders_list(request->session->store, &users);

    if (count < 0)
        return (int)count;
    budget->user_max_size = atomic_load(&request->session->store->user_limit);
    qsort(users, (size_t)count, sizeof(*users), by_size);
    for (int64_t i = 0; i < MIN(count, (int64_t)WB_CONTROL_BUDGET_USERS_MAX); i++)
        put_user(out, &users[i]);
    return 0;
}

int wb_control_budget(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_budget *budget = (struct wb_control_budget *)(void *)out->data;
    int r = wb_control_need_keeper(request);

    if (r == -EPERM)
        return put_own(request, out);
    r = r < 0 ? r : wb_keeper_fill_budget(request->session, budget);
    return r < 0 ? r : put_users(request, out);
}

int wb_control_usage(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_usage *reply = (struct wb_control_usage *)(void *)out->data;
    struct wb_past *past = request->session->past;
    struct kept wanted = {.paged.generation = wb_pages_generation(past), .cursor = request->in->cursor,
                          .uid = fuse_req_ctx(request->req)->uid};
    struct kept *kept = NULL;
    int r = 0;

    if (request->in->cursor == 0)
        r = begin(request, &kept);
    else
        kept = (struct kept *)wb_pages_take(&past->usages, &wanted.paged, continues);
    if (!kept)
        return r < 0 ? r : -ESTALE;
    r = work(kept, request);
    if (r < 0) {
        free_paged(&kept->paged);
        return r;
    }
    reply->looked = kept->keeper ? kept->usage.looked : 0;
    reply->permille = (uint32_t)MIN(kept->usage.looked * 1000 / kept->usage.expected, 1000);
    if (r == 0) {
        put_sums(kept, request, reply);
        put_items(kept, out);
    }
    out->flags = (r > 0 ? WB_CONTROL_USAGE_BUILDING | WB_CONTROL_USAGE_MORE : 0) |
                 (kept->part ? WB_CONTROL_USAGE_PART : 0) | (kept->whole ? WB_CONTROL_USAGE_STORE : 0);
    out->cursor = ++kept->cursor;
    if (r > 0 || kept->shown < count_items(kept)) {
        out->flags |= WB_CONTROL_USAGE_MORE;
        wb_pages_keep(&past->usages, &kept->paged, free_paged);
    } else {
        free_paged(&kept->paged);
    }
    return 0;
}
