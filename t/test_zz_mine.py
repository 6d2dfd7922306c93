import asyncio, os, random, time
from test_several import *
from lib.client import lock_path
DUR=float(os.environ.get("DUR","60"))
def test_chaos(start_gateway, private_zookeeper, connect_tree):
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    gws=[start_gateway(zookeeper=private_zookeeper, session_timeout="2s", location="zk_lock_admin on;") for _ in range(2)]
    for g in gws:
        g.allow("zookeeper|session|sendmsg|worker process|exited on signal|was deleted|lock ")
    seed=int(os.environ.get("SEED", random.randrange(1<<32))); print("SEED", seed)
    d=random.Random(seed)
    names=["x%d"%i for i in range(6)]
    import collections
    cnt=collections.Counter()
    over=[]
    inside={}
    last={}
    async def client(i):
        while not over:
            some=d.sample(names, d.randint(1,4))
            g=d.choice(gws)
            c=AsyncConnection(g.port)
            try:
                kind=d.random()
                mode=d.choice(["exclusive","shared","exclusive"])
                await c.send("POST", PATH, body={"names":some,"wait":d.choice(["0","200ms","5s","1m"]),"ttl":"2s","mode":mode})
                if kind<0.15:
                    await asyncio.sleep(d.random()*0.2)
                    c.reset(); cnt["left"]+=1; continue
                r=await asyncio.wait_for(c.response(), 90)
                cnt[r.status]+=1
                if r.status==201:
                    for l in r.json["locks"]:
                        key=l["name"]
                        if mode=="exclusive":
                            assert l["fencing_token"]>last.get(key,0), (key, l, last.get(key))
                            last[key]=l["fencing_token"]
                    if d.random()<0.3:
                        m=d.choice(["GET","PUT"])
                        a=await asyncio.wait_for(ask(d.choice(gws).port,m,PATH,headers={"Lock-Token":r.token}),30)
                        cnt[m,a.status]+=1
                        assert a.status in (200,410,503,409), a
                    if d.random()<0.1:
                        n=d.choice(some)
                        a=await asyncio.wait_for(ask(d.choice(gws).port,"DELETE",lock_path(n),{"force":"1"},{"If-Match":"*"}),30)
                        cnt["break",a.status]+=1
                    if d.random()<0.9:
                        a=await asyncio.wait_for(ask(d.choice(gws).port,"DELETE",PATH,headers={"Lock-Token":r.token}),30)
                        cnt["DELETE",a.status]+=1
                        assert a.status in (204,410,503), a
                elif r.status == 503:
                    await asyncio.sleep(0.05)
                elif r.status not in (423,410):
                    raise AssertionError(r)
            except (OSError, Gone) as e:
                cnt[type(e).__name__]+=1
                await asyncio.sleep(0.05)
            finally:
                try: c.close()
                except Exception: pass
    async def pager():
        while not over:
            try:
                a=await asyncio.wait_for(ask(d.choice(gws).port,"GET",PATH,{"limit":"3"}),30)
                cnt["page",a.status]+=1
            except (OSError,Gone): pass
            await asyncio.sleep(0.03)
    async def evil():
        loop=asyncio.get_running_loop()
        end=time.time()+DUR
        while time.time()<end:
            await asyncio.sleep(d.random()*1.5)
            what=d.random()
            if what<0.35:
                private_zookeeper.freeze(); await asyncio.sleep(d.choice([0.3,1.2,3.0])); private_zookeeper.thaw(); cnt["freeze"]+=1
            elif what<0.45:
                private_zookeeper.kill(); await asyncio.sleep(0.3); await loop.run_in_executor(None, private_zookeeper.start); cnt["restart"]+=1
            elif what<0.8:
                g=d.choice(gws); ws=g.worker_pids()
                if ws:
                    await loop.run_in_executor(None, kill, g, d.choice(ws)); cnt["kill"]+=1
            else:
                g=d.choice(gws); await loop.run_in_executor(None, g.reload); cnt["reload"]+=1
        over.append(1)
    play(evil(), pager(), *map(client, range(12)), timeout=DUR+200)
    print(cnt)
    wait_until(lambda: tree.client.connected, 30)
    time.sleep(3)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    for n in names:
        tree.wait_claims(gws[0].znode(n), 0, 20)
