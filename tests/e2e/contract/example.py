import asyncio
import httpx
import uuid

BASE_URL = "http://127.0.0.1:8000"

async def sandbox_demo():
    client = httpx.AsyncClient(
        timeout=120.0,
        http2=False,  # Required
        headers={
            'User-Agent': 'SandboxClient/1.0',
            'X-Request-ID': str(uuid.uuid4()),
            'Content-Type': 'application/json'
        }
    )
    
    # 1. Login
    r = await client.post(
        f'{BASE_URL}/api/v1/auth/login/swagger',
        params={'username': 'sandbox_test', 'password': 'TestPass123!'}
    )
    token = r.json()['access_token']
    client.headers['Authorization'] = f'Bearer {token}'
    
    # 2. Create sandbox
    r = await client.post(
        f'{BASE_URL}/agent/sandboxes/sandboxes/create',
        json={'user_id': 'demo'}
    )
    sandbox_id = r.json()['data']['sandbox_id']
    print(f"Created: {sandbox_id}")
    
    # 3. Run command
    r = await client.post(
        f'{BASE_URL}/agent/sandboxes/sandboxes/run-cmd',
        json={'sandbox_id': sandbox_id, 'command': 'python3 --version'}
    )
    print(f"Output: {r.json()['data']['output']}")
    
    # 4. Cleanup
    await client.delete(f'{BASE_URL}/agent/sandboxes/sandboxes/{sandbox_id}')
    print("Deleted")
    
    await client.aclose()

asyncio.run(sandbox_demo())
