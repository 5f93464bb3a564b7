/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inodes of the graveyard and of the tree, each with the object it is. */
#include "check/rebind/rebind.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "store/directory/shard.h"
#include "store/object/catalog_path.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BIT(file) (1u << (file))

/* What is left once tree and history are matched: what is in neither place, and files that may be others. */

/* ---- what is missing --------------------------------------------------------------------------------- */

/*
 * Whether the records that took the name away may be forgotten by age: its directory is not in the tree any more, and
 * before a directory goes, all that is in it goes.
 */
static bool is_forgotten(const struct wb_rebinding *rebinding, const struct wb_fact *fact)
{
    const struct wb_header *header = &rebinding->checking->header;
    const struct wb_rebind_subject *dir = g_hash_table_lookup(rebinding->subjects, &fact->dir);

    return header->forgotten && MAX(fact->arrived, fact->met) <= header->created && (!dir || !dir->match);
}

/* The name that an object should have, where nothing has it. */
static void find_missing(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->facts);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_fact *fact = value, *same;
        struct wb_object object = wb_rebind_resolve(rebinding, fact->dir, fact->name, &same);
        struct wb_rebind_subject *subject =
            wb_object_is_none(object) ? NULL : g_hash_table_lookup(rebinding->subjects, &object);

        if (!subject || subject->match)
            continue;
        if (is_forgotten(rebinding, fact))
            subject->outlived = true;
        else
            subject->fact = fact;
    }
}

static void report_missing(struct wb_rebinding *rebinding, const struct wb_rebind_subject *subject)
{
    const struct wb_fact *fact = subject->fact;
    const struct wb_rebind_subject *dir = fact ? g_hash_table_lookup(rebinding->subjects, &fact->dir) : NULL;
    const char *above = dir && dir->match ? dir->match->path : "?";
    g_autofree char *path = fact ? g_strdup_printf("%s%s%s", above, *above ? "/" : "", fact->name) : NULL;
    char file[WB_OBJECT_TEXT_MAX];
    struct wb_check_where where = {.path = path, .file = fact ? NULL : file};

    wb_object_print(subject->object, file);
    wb_check_report(rebinding->checking, WB_CHECK_LOST, "missing", where, NULL,
                    "it is not in this tree; its history is kept, but belongs to no file");
}

static unsigned type_bit(uint32_t type)
{
    return BIT(type >> 12);
}

/* The types that the object may have. A directory has no undo log. */
static unsigned types_of(const struct wb_rebind_subject *subject)
{
    return subject->type ? type_bit(subject->type) : ~type_bit(S_IFDIR);
}

/* The types of all that is in the tree and has no records. */
static unsigned unrecorded_types(const struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    unsigned types = 0;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_match *match = value;

        if (!match->recorded)
            types |= type_bit(match->type);
    }
    return types;
}

static void report_lost_track(struct wb_rebinding *rebinding, const struct wb_rebind_subject *subject)
{
    bool given_up = wb_check_mends(rebinding->checking, true);
    char file[WB_OBJECT_TEXT_MAX];
    struct wb_check_where where = {.file = file};

    wb_object_print(subject->object, file);
    rebinding->lost_track++;
    rebinding->lost_types |= types_of(subject);
    wb_check_report(rebinding->checking, given_up ? WB_CHECK_LOST : WB_CHECK_WRONG, "lost-track", where,
                    given_up
                        ? "kept without a file; the past of all files that it may belong to is unknown"
                        : "-y keeps it without a file; then the past of all files that it may belong to is unknown",
                    "no record identifies the file of this tree that this history belongs to");
}

/* Whether others may have moved it from there, and no mark shows it: `known` is when it was there. */
static bool may_have_left(const struct wb_rebinding *rebinding, const struct wb_rebind_subject *subject,
                          const struct wb_rebind_subject *dir, int64_t known)
{
    if (known >= wb_rebind_trusted(rebinding, dir->object))
        return false;
    if (rebinding->unlisted[dir->object.ino % WB_SHARDS] || known < dir->missed)
        return true;
    return rebinding->unlisted[subject->object.ino % WB_SHARDS] || subject->damaged || subject->log_lost ||
           subject->forgotten || subject->unseen > known;
}

/*
 * Whether the object may be in the tree under another name: no record shows that it had its name, or that a directory
 * above it had its own, after the time that is not known there. Another process may have renamed either in bare SRC.
 */
static bool may_be_elsewhere(const struct wb_rebinding *rebinding, const struct wb_rebind_subject *subject)
{
    for (unsigned depth = 0; subject && !subject->match && depth < WB_RESOLVE_STEPS_MAX; depth++) {
        const struct wb_rebind_subject *dir =
            subject->fact ? g_hash_table_lookup(rebinding->subjects, &subject->fact->dir) : NULL;

        if (!subject->fact)
            return !subject->outlived && !(subject->lost > 0 && subject->lost >= subject->seen);
        /* Older versions recorded changes by others without the place of the directory. */
        if (!dir || may_have_left(rebinding, subject, dir, MAX(subject->fact->arrived, subject->fact->met)))
            return true;
        subject = dir;
    }
    return false;
}

static void look_after_subjects(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    unsigned unrecorded;
    void *value;

    find_missing(rebinding);
    unrecorded = unrecorded_types(rebinding);
    g_hash_table_iter_init(&iter, rebinding->subjects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_rebind_subject *subject = value;
        /*
         * An object whose log was pruned as a whole has only its present state, wherever it is in the tree. A log
         * forgotten beyond the horizon refuses older states, which others still have.
         */
        bool has_history = subject->seen > 0 || subject->until > 0 || subject->log_lost ||
                           (!subject->forgotten && subject->files & (BIT(WB_FILE_UNDO) | BIT(WB_FILE_CATALOG)));

        if (subject->match || !has_history || (subject->lost > 0 && subject->lost >= subject->seen) ||
            (subject->outlived && !subject->fact))
            continue;
        if (!(types_of(subject) & unrecorded) || !may_be_elsewhere(rebinding, subject))
            report_missing(rebinding, subject);
        else
            report_lost_track(rebinding, subject);
    }
}

/* ---- contents that may be others ------------------------------------------------------------------ */

/*
 * Whether a file is not what the records are of: somebody changed it, or put another in its place, without the mount.
 * A copy keeps size and mtime. Times that a user set prove nothing.
 */
static bool is_doubtful(const struct wb_rebinding *rebinding, const struct wb_match *match)
{
    const struct wb_known *known = g_hash_table_lookup(rebinding->checking->objects, &match->object);
    const struct wb_rebind_subject *subject = g_hash_table_lookup(rebinding->subjects, &match->object);
    const struct wb_header *header = &rebinding->checking->header;
    /* Of what was before there may be some records, and not the newest. */
    int64_t horizon = MAX(header->forgotten ? header->created : 0, subject ? subject->until : 0);
    int64_t newest = MAX(known ? known->newest : 0, horizon);
    bool staged = wb_external_is_staged(rebinding->checking, match->object);

    if (!match->recorded)
        /* Made by the mount, and never changed; or there before there was a history, and never changed since. */
        return match->fact && match->fact->changed ? wb_check_is_beyond(match->mtime, match->fact->changed)
                                                   : match->mtime > header->created;
    newest = MAX(newest, match->fact ? match->fact->changed : 0);
    /* An open write session leaves no record of growth: until the daemon was killed, hardly later than any record. */
    if (staged)
        newest = MAX(newest, rebinding->newest);
    if (known && !staged && known->resized > horizon && known->size_after > 0 && match->size > known->size_after)
        return true;
    return wb_check_is_beyond(match->mtime, newest) &&
           (!subject || subject->timed == 0 || subject->timed < subject->content);
}

/* Files that had more names: what was one of these is another file now, with the same size and mtime. */
static void find_parted(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_match *match = value;
        const struct wb_rebind_subject *subject = g_hash_table_lookup(rebinding->subjects, &match->object);
        struct wb_parted *parted;

        if (!match->is_file || !subject || subject->links <= match->links)
            continue;
        parted = g_new(struct wb_parted, 1);
        *parted = (struct wb_parted){(int64_t)match->size, match->mtime};
        g_hash_table_add(rebinding->parted, parted);
    }
}

static bool is_parted(const struct wb_rebinding *rebinding, const struct wb_match *match)
{
    struct wb_parted key = {(int64_t)match->size, match->mtime};

    return !match->recorded && g_hash_table_contains(rebinding->parted, &key);
}

static void look_at_contents(struct wb_rebinding *rebinding)
{
    bool marked = wb_check_mends(rebinding->checking, true) && rebinding->hindered == 0;
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_match *match = value;
        struct wb_check_where where = {.path = match->path};

        /* A history that is left over may be of anything of its type without one. */
        match->doubtful = (match->is_file && (is_doubtful(rebinding, match) || is_parted(rebinding, match))) ||
                          (!match->recorded && (match->foreign || type_bit(match->type) & rebinding->lost_types));
        if (!match->doubtful)
            continue;
        rebinding->doubtful++;
        wb_check_report(rebinding->checking, marked ? WB_CHECK_REPAIRED : WB_CHECK_WRONG, "external-content", where,
                        marked ? "its versions until now were marked as unknown"
                               : "-y marks its versions until now as unknown",
                        "its present state does not match its records");
    }
}

/* Reports the objects in neither, and those that the history may not be of. */
static void rebind_look_after(struct wb_rebinding *rebinding)
{
    look_after_subjects(rebinding);
    find_parted(rebinding);
    look_at_contents(rebinding);
}

struct tree {
    struct wb_rebinding *rebinding;
    GString *path;
    unsigned depth;
    int64_t changed; /* newest: a record about a name on the way, or one that may be missing there */
};

static void hindrance(struct wb_rebinding *rebinding, const char *code, const char *path, const char *text)
{
    struct wb_check_where where = {.path = path};

    rebinding->hindered++;
    wb_check_report(rebinding->checking, WB_CHECK_LOST, code, where, NULL, "%s", text);
}

/* ---- matches ------------------------------------------------------------------------------------- */

static struct wb_match *new_match(struct wb_rebinding *rebinding, struct wb_object inode, const char *path)
{
    struct wb_match *match = g_try_new0(struct wb_match, 1);

    if (match) {
        match->inode = inode;
        match->path = g_strdup(path);
        g_hash_table_add(rebinding->matches, match);
    }
    return match;
}

/* An inode without records was always there: so it gets a birth that is none, and a number that no object has. */
static int make_up(struct wb_rebinding *rebinding, struct wb_match *match)
{
    struct wb_rebind_subject *subject;

    match->object = (struct wb_object){match->inode.ino, 1};
    while (g_hash_table_contains(rebinding->subjects, &match->object))
        match->object.birth++;
    subject = wb_rebind_subject(rebinding, match->object);
    if (!subject)
        return -ENOMEM;
    subject->match = match;
    match->recorded = false;
    return 0;
}

/* Binds the inode to the object, if nothing is against it; else reports the reason. */
static int bind(struct wb_rebinding *rebinding, struct wb_match *match, struct wb_object object)
{
    struct wb_rebind_subject *subject = wb_rebind_subject(rebinding, object);

    if (!subject)
        return -ENOMEM;
    if (subject->match && subject->match != match) {
        hindrance(rebinding, "split-links", match->path,
                  "the copy has several files in place of one that had several names (or was deleted under one of "
                  "them); copy tree and store again, together and with hard links (cp -a, rsync -aHAX, tar)");
        return 0;
    }
    if (match->recorded && !wb_object_equal(match->object, object)) {
        hindrance(rebinding, "wrong-object", match->path,
                  "it is one file under names that belong to several files in the records");
        return 0;
    }
    if (!match->recorded && !wb_object_is_none(match->object)) {
        struct wb_rebind_subject *made_up = g_hash_table_lookup(rebinding->subjects, &match->object);

        if (made_up)
            made_up->match = NULL;
    }
    match->object = object;
    match->recorded = true;
    subject->match = match;
    return 0;
}

/* ---- the graveyard -------------------------------------------------------------------------------- */

static int match_buried(void *data, int fd, const char *name)
{
    struct wb_rebinding *rebinding = data;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_rebind_subject *subject;
    struct wb_object object, inode;
    struct wb_match *match;
    enum wb_object_file file;
    struct stat st;
    int r;

    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_DATA && file != WB_FILE_DIR))
        return 0;
    wb_object_path(object, file, path);
    r = wb_object_stat(NULL, fd, name, &inode, NULL, &st);
    if (r < 0)
        return r;
    match = g_hash_table_lookup(rebinding->matches, &inode);
    if (!match)
        match = new_match(rebinding, inode, path);
    subject = wb_rebind_subject(rebinding, object);
    if (!match || !subject)
        return -ENOMEM;
    subject->files |= (uint8_t)BIT(file);
    match->buried = true;
    return bind(rebinding, match, object);
}

static int match_graveyard(struct wb_rebinding *rebinding)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < WB_SHARDS && rebinding->checking->grave_fd >= 0; i++)
        r = wb_shard_each(rebinding->checking->grave_fd, i, match_buried, rebinding);
    return r;
}

/* ---- the tree ------------------------------------------------------------------------------------- */

/* What the records say has the name, if it can be that. */
static struct wb_object claimed(struct tree *tree, struct wb_object dir, const char *name, uint32_t type,
                                struct wb_fact **ret_fact, bool *ret_foreign)
{
    struct wb_object object = wb_rebind_resolve(tree->rebinding, dir, name, ret_fact);
    const struct wb_rebind_subject *subject =
        wb_object_is_none(object) ? NULL : g_hash_table_lookup(tree->rebinding->subjects, &object);

    *ret_foreign = subject && subject->type && subject->type != type;
    if (*ret_foreign) {
        struct wb_check_where where = {.path = tree->path->str};

        wb_check_report(tree->rebinding->checking, WB_CHECK_LOST, "wrong-kind", where, NULL,
                        "the records of this name belong to another kind of file; it does not get that history");
        return WB_OBJECT_NONE;
    }
    return object;
}

static bool has_records(const struct wb_rebind_subject *subject)
{
    return subject && (subject->match || subject->files || subject->seen || subject->lost);
}

/*
 * A directory without records that a snapshot is of, in a store that did not yet record its place then. Nothing renamed
 * it, so it has the path that the snapshot records if no name on the way was changed since.
 */
static struct wb_object scope_at(const struct tree *tree)
{
    const struct wb_header *header = &tree->rebinding->checking->header;
    g_autofree struct wb_scope *key = g_malloc0(sizeof(*key) + tree->path->len + 1);
    const struct wb_scope *scope;

    memcpy(key->path, tree->path->str, tree->path->len);
    scope = g_hash_table_lookup(tree->rebinding->scopes, key);
    if (!scope || scope->when <= tree->changed || (header->forgotten && scope->when <= header->created) ||
        has_records(g_hash_table_lookup(tree->rebinding->subjects, &scope->object)))
        return WB_OBJECT_NONE;
    return scope->object;
}

/* What is known of dir/name counts for all below it. */
static void note_way(struct tree *tree, struct wb_object dir, const struct wb_fact *fact)
{
    const struct wb_rebind_subject *subject = g_hash_table_lookup(tree->rebinding->subjects, &dir);

    tree->changed = MAX(tree->changed, wb_rebind_trusted(tree->rebinding, dir));
    if (subject)
        tree->changed = MAX(tree->changed, subject->until);
    if (fact)
        tree->changed = MAX(tree->changed, fact->changed);
}

static int walk_dir(struct tree *tree, int fd, struct wb_object dir);

static int walk_below(struct tree *tree, int dir_fd, const char *name, struct wb_object dir)
{
    _cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (fd < 0)
        return -errno;
    tree->depth++;
    r = walk_dir(tree, fd, dir);
    tree->depth--;
    return r;
}

static int visit(struct tree *tree, int dir_fd, struct wb_object dir, const char *name)
{
    struct wb_rebinding *rebinding = tree->rebinding;
    int64_t above = tree->changed;
    struct wb_object inode, object;
    struct wb_match *match;
    struct wb_fact *fact;
    struct wb_attrs attrs;
    struct stat st;
    bool foreign;
    int r = wb_object_stat(NULL, dir_fd, name, &inode, &attrs, &st);

    if (r < 0)
        return r;
    /* A mount point belongs to another file system, and has no history here. */
    if (st.st_dev != rebinding->checking->src_dev)
        return 0;
    object = claimed(tree, dir, name, st.st_mode & S_IFMT, &fact, &foreign);
    match = g_hash_table_lookup(rebinding->matches, &inode);
    if (!match)
        match = new_match(rebinding, inode, tree->path->str);
    if (!match)
        return -ENOMEM;
    if (!match->path || match->buried) {
        g_free(match->path);
        match->path = g_strdup(tree->path->str);
    }
    match->is_file = S_ISREG(st.st_mode);
    match->is_dir = S_ISDIR(st.st_mode);
    match->type = st.st_mode & S_IFMT;
    match->foreign |= foreign;
    match->size = attrs.size;
    match->links = attrs.nlink - match->buried;
    match->mtime = attrs.mtime;
    match->dir = dir;
    match->fact = fact;
    note_way(tree, dir, fact);
    if (wb_object_is_none(object) && S_ISDIR(st.st_mode))
        object = scope_at(tree);
    if (!wb_object_is_none(object))
        r = bind(rebinding, match, object);
    if (r == 0 && wb_object_is_none(match->object))
        r = make_up(rebinding, match);
    rebinding->checking->result.entries++;
    if (r == 0 && !wb_check_progress(rebinding->checking, 1, 0))
        r = -ECANCELED;
    if (r == 0 && S_ISDIR(st.st_mode))
        r = walk_below(tree, dir_fd, name, match->object);
    tree->changed = above;
    return r;
}

static int walk_dir(struct tree *tree, int fd, struct wb_object dir)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(fd, ".");
    size_t length = tree->path->len;
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r)) {
        const char *name = entry->d_name;

        if (tree->depth == 0 && (strcmp(name, WB_STORE_NAME) == 0 || strcmp(name, WB_STAGING_NAME) == 0))
            continue;
        g_string_append_printf(tree->path, "%s%s", length > 0 ? "/" : "", name);
        r = visit(tree, fd, dir, name);
        g_string_truncate(tree->path, length);
    }
    return r;
}

static int match_root(struct wb_rebinding *rebinding)
{
    struct wb_checking *checking = rebinding->checking;
    struct wb_object inode;
    struct wb_match *match;
    struct stat st;
    int r = wb_object_stat(NULL, checking->src_fd, NULL, &inode, NULL, &st);

    if (r < 0)
        return r;
    checking->src_dev = st.st_dev;
    match = new_match(rebinding, inode, "");
    return match ? bind(rebinding, match, checking->header.root) : -ENOMEM;
}

int wb_rebind_match(struct wb_rebinding *rebinding)
{
    struct tree tree = {.rebinding = rebinding, .path = g_string_new("")};
    int r = match_root(rebinding);

    if (r == 0)
        r = match_graveyard(rebinding);
    if (r == 0)
        r = walk_dir(&tree, rebinding->checking->src_fd, rebinding->checking->header.root);
    g_string_free(tree.path, TRUE);
    if (r == 0)
        rebind_look_after(rebinding);
    return r;
}
