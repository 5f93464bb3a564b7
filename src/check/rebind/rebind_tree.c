/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The inodes of the graveyard and of the tree, each with the object it is. */
#include "check/rebind/rebind.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "store/directory/folder.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BIT(file) (1u << (file))

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
    wb_check_tell(rebinding->checking, WB_CHECK_LOST, code, where, NULL, "%s", text);
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
    struct wb_subject *subject;

    match->object = (struct wb_object){match->inode.ino, 1};
    while (g_hash_table_contains(rebinding->subjects, &match->object))
        match->object.birth++;
    subject = wb_rebind_subject(rebinding, match->object);
    if (!subject)
        return -ENOMEM;
    subject->match = match;
    match->told = false;
    return 0;
}

/* Binds the inode to the object, if nothing is against it; else it is told. */
static int bind(struct wb_rebinding *rebinding, struct wb_match *match, struct wb_object object)
{
    struct wb_subject *subject = wb_rebind_subject(rebinding, object);

    if (!subject)
        return -ENOMEM;
    if (subject->match && subject->match != match) {
        hindrance(rebinding, "split-links", match->path,
                  "the copy has several files in place of one that had several names (or was deleted under one of "
                  "them); copy tree and store again, together and with hard links (cp -a, rsync -aHAX, tar)");
        return 0;
    }
    if (match->told && !wb_object_equal(match->object, object)) {
        hindrance(rebinding, "wrong-object", match->path,
                  "it is one file under names that belong to several files in the records");
        return 0;
    }
    if (!match->told && !wb_object_is_none(match->object)) {
        struct wb_subject *made_up = g_hash_table_lookup(rebinding->subjects, &match->object);

        if (made_up)
            made_up->match = NULL;
    }
    match->object = object;
    match->told = true;
    subject->match = match;
    return 0;
}

/* ---- the graveyard -------------------------------------------------------------------------------- */

static int match_buried(void *data, int fd, const char *name)
{
    struct wb_rebinding *rebinding = data;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_subject *subject;
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

    for (unsigned i = 0; r == 0 && i < WB_FOLDERS && rebinding->checking->grave_fd >= 0; i++)
        r = wb_folder_each(rebinding->checking->grave_fd, i, match_buried, rebinding);
    return r;
}

/* ---- the tree ------------------------------------------------------------------------------------- */

/* What the records say has the name, if it can be that. */
static struct wb_object claimed(struct tree *tree, struct wb_object dir, const char *name, uint32_t type,
                                struct wb_fact **ret_fact)
{
    struct wb_object object = wb_rebind_resolve(tree->rebinding, dir, name, ret_fact);
    const struct wb_subject *subject =
        wb_object_is_none(object) ? NULL : g_hash_table_lookup(tree->rebinding->subjects, &object);

    if (subject && subject->type && subject->type != type) {
        struct wb_check_where where = {.path = tree->path->str};

        wb_check_tell(tree->rebinding->checking, WB_CHECK_LOST, "wrong-kind", where, NULL,
                      "the records of this name belong to another kind of file; it does not get that history");
        return WB_OBJECT_NONE;
    }
    return object;
}

static bool has_records(const struct wb_subject *subject)
{
    return subject && (subject->match || subject->files || subject->seen || subject->lost);
}

/*
 * A directory without records that a snapshot is of, in a store that did not yet record its place then. Nothing renamed
 * it, so it has the path that the snapshot tells if no name on the way was changed since.
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
    const struct wb_subject *subject = g_hash_table_lookup(tree->rebinding->subjects, &dir);

    if (subject)
        tree->changed = MAX(tree->changed, MAX(subject->trusted, subject->until));
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
    int r = wb_object_stat(NULL, dir_fd, name, &inode, &attrs, &st);

    if (r < 0)
        return r;
    /* A mount point belongs to another file system, and has no history here. */
    if (st.st_dev != rebinding->checking->src_dev)
        return 0;
    object = claimed(tree, dir, name, st.st_mode & S_IFMT, &fact);
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
        wb_rebind_look_after(rebinding);
    return r;
}
