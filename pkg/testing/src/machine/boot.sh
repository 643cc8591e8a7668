# Makes a machine of a folder: takes the namespaces, gives it a root that has nothing of this machine but `/usr`, waits
# for its cable, and becomes its first process.
set -e
disk=$1 group=$2
for controller in /sys/fs/cgroup/*/; do [ -d "$controller$group" ] && echo $$ > "$controller$group/cgroup.procs"; done
exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child --propagation private bash -c '
set -e
disk=$1 name=$2 addresses=$3 init=$4 root=$1/root
mount --bind "$root" "$root"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind "$disk/local" "$root/usr/local"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/run/lock" "$root/dev/pts" "$root/dev/shm"
cp -a /dev/{null,zero,full,random,urandom,tty,fd,stdin,stdout,stderr} "$root/dev"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
for controller in $(cd /sys/fs/cgroup && ls -d */ | tr -d /); do
  mkdir "$root/sys/fs/cgroup/$controller"
  case $controller in
    unified) mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/$controller" ;;
    systemd) mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/$controller" ;;
    *) mount -t cgroup -o "$controller" cgroup "$root/sys/fs/cgroup/$controller" ;;
  esac
done
cd "$root"
pivot_root . .
umount -l .
cd /
# A first process clears folders away: those of this machine must be out of sight.
[ ! -e "$disk" ]
hostname "$name"
touch /ready
until [ -e /sys/class/net/eth0 ]; do sleep 0.02; done
echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
for address in $addresses; do ip address add "$address" dev eth0; done
ip link set lo up
ip link set eth0 up
[ "$init" = systemd ] && exec env -i container=testing /lib/systemd/systemd
setsid containerd > /var/log/containerd.log 2>&1 < /dev/null &
while true; do sleep infinity & wait $!; done
' boot "$disk" "$3" "$4" "$5"
