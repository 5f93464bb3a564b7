/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/live/io.h"

#include "base/cleanup.h"
#include "daemon/core/access.h"
#include "store/cache/preclone.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* So many descriptors at most are closed to make room for one. */
#define EVICTIONS 4

/* So many are looked at to find one. */
#define LOOKS 32
/* Descriptors of files that cannot be opened again, as their mode is, leave room for so many that must stay open. */
#define HARD_ROOM 16

/* Descriptors to write through that were not used for so many turns of wb_io_close_unused are closed; in one turn so
 * many at most, of so many that are looked at. */
#define UNUSED_TURNS 2
#define UNUSED 512
#define UNUSED_LOOKS 8192

/* ---- eviction -------------------------------------------------------------------------------- */

/*
 * Whether nothing else leads to the inode. `any`: but for the graveyard, or for a name that the kernel would look up
 * anew: programs that have the file open may lose it then.
 */
static bool is_only_way(const struct wb_session *session, const struct wb_lower *lower, bool any)
{
    const struct wb_inode *inode = lower->inode;

    if (wb_inode_is_dir(inode) || inode->lowers != lower || lower->next)
        return false;
    if (inode->unborn)
        return true;
    if (!inode->dead)
        return !inode->name && !any;
    return !session->recording || inode->buried != WB_BURIED_YES || !any;
}

/* Whether the file's mode and flags permit to open it once more. */
static bool opens_again(const struct wb_lower *lower)
{
    int access = lower->mode & O_ACCMODE;
    int mask = access == O_RDONLY ? R_OK : access == O_WRONLY ? W_OK : R_OK | W_OK;
    struct statx stx;

    if (syscall(SYS_faccessat2, lower->fd, "", mask, AT_EMPTY_PATH | AT_EACCESS) < 0 &&
        (errno == EACCES || errno == EPERM || errno == EROFS))
        return false;
    return access == O_RDONLY || lower->mode & O_APPEND ||
           statx(lower->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) < 0 ||
           !(stx.stx_attributes & STATX_ATTR_APPEND);
}

/* With nodes.lock held: the least recently used one that may be closed, or NULL. `any`: also if it cannot be opened
 * again as long as the file's mode is what it is. One that must stay open is looked at later again. If there is no room
 * at all, each is looked at. */
static struct wb_lower *find_victim(struct wb_session *session, bool any)
{
    struct wb_lowers *lowers = &session->lowers;
    unsigned looks = any && lowers->count >= lowers->limit ? lowers->count : LOOKS;

    for (unsigned i = 0; i < looks && lowers->oldest; i++) {
        struct wb_lower *lower = lowers->oldest;

        if (!is_only_way(session, lower, any) && (any || opens_again(lower)))
            return lower;
        wb_lower_use(session, lower);
        wb_lower_release(session, lower);
    }
    return NULL;
}

/* With nodes.lock held. *ret_any: that of find_victim. */
static struct wb_lower *choose_victim(struct wb_session *session, bool *ret_any)
{
    const struct wb_lowers *lowers = &session->lowers;
    struct wb_lower *lower = NULL;

    *ret_any = false;
    if (lowers->count >= lowers->max)
        lower = find_victim(session, false);
    if (!lower && lowers->count + HARD_ROOM >= MIN(2 * lowers->max, lowers->limit)) {
        *ret_any = true;
        lower = find_victim(session, true);
    }
    return lower;
}

static void note_error(struct wb_session *session, struct wb_inode *inode, int r)
{
    if (r == 0)
        return;
    pthread_mutex_lock(&session->nodes.lock);
    inode->sync_error = r;
    pthread_mutex_unlock(&session->nodes.lock);
}

static void clear_written(struct wb_session *session, struct wb_lower *lower)
{
    pthread_mutex_lock(&session->nodes.lock);
    lower->written = false;
    pthread_mutex_unlock(&session->nodes.lock);
}

/*
 * Takes over the errors of write-back that happened until now. Nothing is written here: bytes must not get to the disk
 * before their records. An error that happens later is reported to the descriptor that is opened next, as long as the
 * kernel has the inode in memory.
 */
static void take_errors(struct wb_session *session, struct wb_lower *lower)
{
    int r;

    /* Nothing is written through it, and the call would fail. */
    if (lower->mode & O_PATH)
        return;
    pthread_mutex_lock(&lower->lock);
    clear_written(session, lower);
    r = sync_file_range(lower->fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE);
    note_error(session, lower->inode, r < 0 ? -errno : 0);
    pthread_mutex_unlock(&lower->lock);
}

/* With nodes.lock held. */
static void evict_begin(struct wb_session *session, struct wb_lower *lower)
{
    lower->inode->refs++;
    wb_lower_use(session, lower);
    lower->users++;
}

/* Closes it unless it has been used meanwhile, or another one of its node was closed. `any` as of is_only_way. */
static void evict_end(struct wb_session *session, struct wb_lower *lower, bool any)
{
    struct wb_inode *inode = lower->inode;

    take_errors(session, lower);
    pthread_mutex_lock(&session->nodes.lock);
    lower->users--;
    if (lower->refs > 0 || lower->users > 0 || lower->written || is_only_way(session, lower, any)) {
        wb_lower_release(session, lower);
        lower = NULL;
    } else {
        wb_lower_detach(session, lower);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    if (lower && (lower->mode & O_ACCMODE) != O_RDONLY && wb_recorder(session))
        wb_preclone_release(session->store, inode->node.object);
    note_error(session, inode, wb_lower_free(lower));
    wb_inode_unref(session, inode);
}

/* Whether there was one to evict. */
static bool evict(struct wb_session *session)
{
    struct wb_lower *lower;
    bool any;

    pthread_mutex_lock(&session->nodes.lock);
    lower = choose_victim(session, &any);
    if (lower)
        evict_begin(session, lower);
    pthread_mutex_unlock(&session->nodes.lock);
    if (lower)
        evict_end(session, lower, any);
    return lower;
}

int wb_io_make_room(struct wb_session *session)
{
    bool full;

    if (!session->lowers.caches)
        return 0;
    for (int i = 0; i < EVICTIONS && evict(session); i++)
        ;
    pthread_mutex_lock(&session->nodes.lock);
    full = session->lowers.count >= session->lowers.limit;
    pthread_mutex_unlock(&session->nodes.lock);
    return full ? -EMFILE : 0;
}

/*
 * A file that is open to be written cannot be executed in bare SRC, and its clones ahead wait for more. No close(2) is
 * seen, so disuse ends that.
 */
void wb_io_close_unused(struct wb_session *session)
{
    WB_WITH_RELOCATE_LOCK(session);
    struct wb_lower *unused[UNUSED], *next, *lower;
    unsigned count = 0, looks = UNUSED_LOOKS;

    if (!session->lowers.caches)
        return;
    pthread_mutex_lock(&session->nodes.lock);
    session->lowers.turn++;
    for (lower = session->lowers.oldest; lower && count < UNUSED && looks-- > 0; lower = next) {
        next = lower->newer;
        if (session->lowers.turn - lower->turn < UNUSED_TURNS)
            break;
        if ((lower->mode & O_ACCMODE) == O_RDONLY || is_only_way(session, lower, false) || !opens_again(lower))
            continue;
        evict_begin(session, lower);
        unused[count++] = lower;
    }
    pthread_mutex_unlock(&session->nodes.lock);
    while (count > 0)
        evict_end(session, unused[--count], false);
}

/* ---- names that are removed -------------------------------------------------------------------- */

/* Whether no name is known but this one. */
static bool is_known_only_by(struct wb_session *session, const struct wb_inode *inode, const struct wb_inode *dir,
                             const char *name)
{
    bool known;

    pthread_mutex_lock(&session->nodes.lock);
    known = inode->parent == dir && inode->name && strcmp(inode->name, name) == 0 && !inode->aliases;
    pthread_mutex_unlock(&session->nodes.lock);
    return known;
}

/* What must stay open is to be read as well, which takes a further descriptor. */
static bool is_nearly_full(struct wb_session *session)
{
    bool full;

    pthread_mutex_lock(&session->nodes.lock);
    full = session->lowers.count + HARD_ROOM >= session->lowers.limit;
    pthread_mutex_unlock(&session->nodes.lock);
    return full;
}

int wb_io_pin_begin(struct wb_session *session, uid_t uid, struct wb_inode *inode, const struct wb_inode *dir,
                    int dir_fd, const char *name, nlink_t links, bool buried, struct wb_pin *ret)
{
    bool caches = session->lowers.caches && !wb_inode_is_dir(inode);
    int fd, r = 0;

    *ret = WB_PIN_NONE;
    if (caches ? links > 1 && !is_known_only_by(session, inode, dir, name) : buried)
        return 0;
    fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (!caches) {
        ret->fd = fd;
        return 0;
    }
    if (fd < 0)
        r = -errno;
    else if (is_nearly_full(session))
        r = -EMFILE;
    if (r == 0)
        r = wb_lower_add(session, inode, wb_steal_fd(&fd), uid, true, &ret->lower);
    wb_close_fd(&fd);
    /* The graveyard leads to it, or another name, which the kernel looks up anew. */
    return buried || links > 1 ? 0 : r;
}

void wb_io_pin_end(struct wb_session *session, uid_t uid, struct wb_inode *inode, struct wb_pin *pin, bool removed)
{
    if (pin->lower)
        wb_lower_put(session, pin->lower, false);
    if (pin->fd >= 0 && removed)
        wb_handle_pin(session, inode, wb_steal_fd(&pin->fd), uid);
    wb_close_fd(&pin->fd);
    *pin = WB_PIN_NONE;
}

/* ---- opening --------------------------------------------------------------------------------- */

bool wb_reads_quietly(const struct wb_session *session, const struct wb_inode *inode, int flags)
{
    const struct wb_options *options = session->options;

    return flags & O_NOATIME || options->noatime || options->read_only ||
           (options->nodiratime && wb_inode_is_dir(inode));
}

int wb_open_readable(struct wb_session *session, struct wb_inode *inode, int flags)
{
    bool quiet = wb_reads_quietly(session, inode, flags);
    int fd = wb_access_open(session, inode, O_RDONLY | (quiet ? O_NOATIME : 0));

    /* An ordinary user's daemon may not for files of others. */
    return quiet && fd == -EPERM ? wb_access_open(session, inode, O_RDONLY) : fd;
}

/*
 * For writing a file is opened for reading, too: what is overwritten has to be read first. The kernel
 * has checked what the caller may do; but a daemon of an ordinary user cannot read a file
 * of mode 0200 either. It is opened for writing alone then: growing it works, and what would
 * lose content that cannot be kept fails with EACCES.
 */
int wb_open_writable(struct wb_session *session, struct wb_inode *inode)
{
    int fd = wb_access_open(session, inode, O_RDWR);

    return fd == -EACCES ? wb_access_open(session, inode, O_WRONLY) : fd;
}

/*
 * Number and birth of the inode were compared (access.c). Births fall on ticks of a coarse clock, so a file that was
 * removed past the mount and made again within one could pass for the former: the generation differs.
 * A removed file may be another inode by now, if the store was moved to another file system.
 */
static int verify(struct wb_inode *inode, int fd)
{
    uint64_t known = 0, now = inode->dead ? 0 : wb_object_handle(fd, "");

    if (now == 0 || atomic_compare_exchange_strong(&inode->file_handle, &known, now) || known == now)
        return 0;
    return -ESTALE;
}

int wb_io_keep(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, struct fuse_file_info *fi)
{
    struct wb_lower *lower;
    int r = verify(inode, fd);

    if (r < 0) {
        close(fd);
        return r;
    }
    r = wb_lower_add(session, inode, fd, fuse_req_ctx(req)->uid, true, &lower);
    if (r < 0)
        return r;
    wb_lower_put(session, lower, false);
    fi->fh = 0;
    fi->keep_cache = 1;
    fi->noflush = 1;
    return 0;
}

void wb_io_before_chmod(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, mode_t mode)
{
    struct wb_io io;

    if (!session->lowers.caches || session->is_root || !S_ISREG(inode->node.type) ||
        (mode & (S_IRUSR | S_IWUSR)) == (S_IRUSR | S_IWUSR))
        return;
    if (wb_io_write(session, req, inode, NULL, &io) < 0 && wb_io_read(session, req, inode, NULL, 0, &io) < 0)
        return;
    io.writes = false;
    wb_io_put(session, &io);
}

/* Takes over `fd` or its error. */
static int add(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, struct wb_io *io)
{
    int r = fd < 0 ? fd : verify(inode, fd);

    if (r < 0) {
        if (fd >= 0)
            close(fd);
        return r;
    }
    r = wb_lower_add(session, inode, fd, fuse_req_ctx(req)->uid, false, &io->lower);
    if (r == 0)
        io->fd = io->lower->fd;
    return r;
}

static bool find(struct wb_session *session, struct wb_inode *inode, const int *modes, size_t count, struct wb_io *io)
{
    io->lower = wb_lower_find(session, inode, modes, count);
    if (io->lower)
        io->fd = io->lower->fd;
    return io->lower;
}

static bool take_handle(struct wb_handle *handle, struct wb_io *io)
{
    *io = (struct wb_io){.fd = handle ? handle->fd : -1, .appends = handle && handle->appends};
    return handle;
}

int wb_io_read(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle, int flags,
               struct wb_io *ret)
{
    static const int noisy[] = {O_RDONLY, O_RDWR}, quiet[] = {O_RDONLY | O_NOATIME, O_RDONLY};
    bool is_quiet = wb_reads_quietly(session, inode, flags);
    int r;

    if (take_handle(handle, ret))
        return 0;
    if (is_quiet ? find(session, inode, quiet, inode->never_quiet ? 2 : 1, ret) : find(session, inode, noisy, 2, ret))
        return 0;
    wb_io_make_room(session);
    r = add(session, req, inode, wb_open_readable(session, inode, flags), ret);
    if (is_quiet && r == 0)
        inode->never_quiet = !(ret->lower->mode & O_NOATIME);
    return r;
}

int wb_io_write(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                struct wb_io *ret)
{
    static const int both[] = {O_RDWR}, write_only[] = {O_WRONLY}, appending[] = {O_RDWR | O_APPEND};
    int fd;

    if (take_handle(handle, ret))
        return 0;
    ret->writes = true;
    if (find(session, inode, both, 1, ret)) {
        ret->appends = inode->append_only;
        return 0;
    }
    wb_io_make_room(session);
    fd = wb_access_open(session, inode, O_RDWR);
    if (fd == -EACCES) {
        if (find(session, inode, write_only, 1, ret))
            return 0;
        fd = wb_access_open(session, inode, O_WRONLY);
    } else if (fd == -EPERM) {
        ret->appends = true;
        if (find(session, inode, appending, 1, ret))
            return 0;
        fd = wb_access_open(session, inode, O_RDWR | O_APPEND);
    }
    return add(session, req, inode, fd, ret);
}

int wb_io_sync(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
               struct wb_io *ret)
{
    static const int modes[] = {O_RDWR, O_RDWR | O_APPEND, O_WRONLY, O_RDONLY, O_RDONLY | O_NOATIME};
    int fd;

    if (take_handle(handle, ret) || find(session, inode, modes, G_N_ELEMENTS(modes), ret))
        return 0;
    wb_io_make_room(session);
    fd = wb_open_readable(session, inode, 0);
    if (fd == -EACCES && !wb_inode_is_dir(inode))
        fd = wb_open_writable(session, inode);
    return add(session, req, inode, fd, ret);
}

void wb_io_put(struct wb_session *session, struct wb_io *io)
{
    wb_lower_put(session, io->lower, io->writes);
    *io = (struct wb_io){.fd = -1};
}

/* ---- syncing --------------------------------------------------------------------------------- */

int wb_io_take_error(struct wb_session *session, struct wb_inode *inode)
{
    int r;

    pthread_mutex_lock(&session->nodes.lock);
    r = inode->sync_error;
    inode->sync_error = 0;
    pthread_mutex_unlock(&session->nodes.lock);
    return r;
}

/* Nothing is written through a descriptor of a directory, and its lock is wanted to read it. */
static bool is_written_through(const struct wb_io *io)
{
    return io->lower && !wb_inode_is_dir(io->lower->inode);
}

void wb_io_sync_begin(struct wb_session *session, struct wb_io *io)
{
    if (!is_written_through(io))
        return;
    pthread_mutex_lock(&io->lower->lock);
    clear_written(session, io->lower);
}

int wb_io_sync_end(struct wb_session *session, struct wb_inode *inode, struct wb_handle *handle, struct wb_io *io,
                   int r)
{
    int kept;

    if (handle)
        r = wb_handle_synced(session, handle, r);
    if (is_written_through(io))
        pthread_mutex_unlock(&io->lower->lock);
    kept = wb_io_take_error(session, inode);
    return r < 0 ? r : kept;
}
